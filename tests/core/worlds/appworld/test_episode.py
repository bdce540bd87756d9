"""The conversation: code blocks, observations, the verdict's own rule; against a session whose answers are given."""

from typing import Any

import pytest

from tasks.core.interfaces.world import Task
from tasks.core.worlds.appworld.kind import AppWorldConfig
from tasks.core.worlds.appworld.pool import ShellRun, Verdict
from tasks.core.worlds.appworld.prompt import NO_CODE, REMINDER, Prompt
from tasks.core.worlds.appworld.world import GAVE_UP, AppWorldEpisode, AppWorldTasks

FACTS: dict[str, Any] = {
    "instruction": "Do it.",
    "supervisor": {"first_name": "A", "last_name": "B", "email": "a@b.com", "phone_number": "1"},
    "app_descriptions": {"venmo": "Pay people.", "phone": "Call people."},
}
RUN = ShellRun("7\n", False, False, (("venmo.login", True), ("venmo.show_profile", False)))
VERDICT = Verdict(("one",), (), "fail", question=False)


class Recorded:
    """A session that answers every block alike and remembers the code."""

    facts = FACTS

    def __init__(self, run: ShellRun = RUN, verdict: Verdict = VERDICT) -> None:
        self._run, self._verdict, self.codes, self.closed = run, verdict, list[str](), 0

    def run(self, code: str) -> ShellRun:
        self.codes.append(code)
        return self._run

    def evaluate(self) -> Verdict:
        return self._verdict

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("text", "code", "blocks"),
    [
        ("I think.\n```python\nx = 1\n```", "x = 1\n", 1),
        ("```py\na\n```\n```python\nb\n```", "a\n", 2),
    ],
)
def test_the_first_block_runs(text: str, code: str, blocks: int) -> None:
    session = Recorded()
    seen = AppWorldEpisode(session, AppWorldConfig()).step(text)
    assert session.codes == [code] and seen.code_blocks == blocks
    assert seen.text == "Output:\n```\n7" and seen.ending.startswith("\n```\n") and seen.ending.endswith(REMINDER)
    assert ("Only the first" in seen.ending) == (blocks > 1)
    assert seen.api_calls == ("venmo.login", "venmo.show_profile") and seen.failed_api_calls == ("venmo.login",)


@pytest.mark.parametrize(
    ("output", "text", "ending"),
    [
        ("Execution failed. Traceback:\n  File\nE: no\n", "Execution failed. Traceback:\n  File", "\nE: no\n```\n"),
        ("Execution failed. Traceback:\nE: " + "x" * 500, "Execution failed. Traceback:\nE: " + "x" * 500, "\n```\n"),
        ("a\nb", "a\nb", "\n```\n"),
    ],
)
def test_the_error_stays_whole_and_what_was_printed_may_be_cut(output: str, text: str, ending: str) -> None:
    session = Recorded(ShellRun(output, False, False, ()))
    seen = AppWorldEpisode(session, AppWorldConfig()).step("```py\na\n```")
    assert seen.text == f"Output:\n```\n{text}" and seen.ending == ending + REMINDER


def test_all_blocks_run_as_one_text_where_the_knob_says_so() -> None:
    session = Recorded()
    seen = AppWorldEpisode(session, AppWorldConfig(), "all").step("```py\na\n```\n```json\n{}\n```\n```python\nb\n```")
    assert session.codes == ["a\nb\n"] and seen.code_blocks == 2 and "Only the first" not in seen.ending


def test_the_whole_task_is_the_reminder_where_the_knob_says_so() -> None:
    episode = AppWorldEpisode(Recorded(), AppWorldConfig(reminder="task"))
    seen = episode.step("```python\nx\n```")
    assert seen.ending.endswith("Task: Do it.)") and "a@b.com" in seen.ending and REMINDER not in seen.ending
    assert all(REMINDER not in message["content"] for message in episode.prompt)


@pytest.mark.parametrize("text", ["", "no code", "`x = 1`", "\ud800", "```\nx = 1\n```", "```bash\nls\n```"])
def test_a_turn_without_code_is_answered(text: str) -> None:
    session = Recorded()
    seen = AppWorldEpisode(session, AppWorldConfig()).step(text)
    assert seen.text == NO_CODE and seen.failed and not seen.done and seen.code_blocks == 0 and not session.codes


@pytest.mark.parametrize(
    ("status", "question", "official", "success"),
    [
        ("fail", False, False, False),
        ("fail", False, True, True),
        ("fail", True, False, True),
        ("success", False, False, True),
        (None, False, False, True),
    ],
)
def test_giving_up_is_no_success(status: str | None, question: bool, official: bool, success: bool) -> None:
    session = Recorded(verdict=Verdict(("one",), (), status, question))
    verdict = AppWorldEpisode(session, AppWorldConfig(official_rule=official)).evaluate()
    assert verdict.success is success
    assert (GAVE_UP in verdict.failed) is not success


def test_the_prompt_names_apps_supervisor_and_task_and_alternates() -> None:
    messages = Prompt(FACTS, "rules").opening()
    assert "- venmo: Pay people.\n- phone: Call people." in messages[0]["content"]
    assert messages[-1]["content"].endswith("Task: Do it.") and "a@b.com" in messages[-1]["content"]
    roles = [message["role"] for message in messages]
    assert roles == ["system", *["user", "assistant"] * (len(roles) // 2 - 1), "user"]


def test_a_world_knows_its_tasks_and_closes_what_it_could_not_open() -> None:
    task = Task("a_1", "a", 1, "train", "Do it.")
    session = Recorded()
    world = AppWorldTasks({"train": [task], "dev": []}, lambda _: session, lambda: None, AppWorldConfig(), "first")
    assert world.tasks("train") == (task,)
    with pytest.raises(ValueError, match="unknown split"):
        world.tasks("test_normal")
    with pytest.raises(KeyError, match="unknown task"):
        world.open("b_1", 0)
    session.facts = {}
    with pytest.raises(KeyError):
        world.open("a_1", 0)
    assert session.closed == 1
