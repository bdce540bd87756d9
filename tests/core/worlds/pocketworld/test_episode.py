import sys
from pathlib import Path

import pytest

from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world import ExecutionTimeout
from tasks.core.interfaces.world_kind import open_world
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.rollouts.episode import shown_observation
from tasks.core.worlds.pocketworld.authoring import write_specs
from tasks.core.worlds.pocketworld.episode import NO_CODE, ONLY_FIRST
from tasks.core.worlds.pocketworld.problem import build_problem, oracle, turn

NULL_BYTE = "SyntaxError" if sys.version_info >= (3, 11, 4) else "ValueError"


@pytest.fixture(scope="module")
def world(tmp_path_factory, specs):
    folder = tmp_path_factory.mktemp("pocketworld") / "world"
    write_specs(folder, specs)
    world = open_world(WorldSection.of("pocketworld"), folder)
    yield world
    world.close()


@pytest.fixture
def episode(world):
    episode = world.open("train_001_1", seed=0)
    yield episode
    episode.close()


def test_oracles_succeed_through_the_sandbox(world, specs):
    for spec in [tasks[i] for tasks in specs.values() for i in (0, len(tasks) // 2, len(tasks) - 1)]:
        episode = world.open(spec.task_id, seed=1)
        seen = [episode.step(text) for text in oracle(build_problem(spec))]
        assert [observation.done for observation in seen] == [False] * (len(seen) - 1) + [True]
        assert not any(observation.failed for observation in seen)
        assert seen[0].api_calls[0] == "api_docs.show_api_doc"
        assert episode.evaluate().success
        episode.close()
        episode.close()


def test_unknown_split_and_task_are_refused(world):
    with pytest.raises(ValueError, match="unknown split 'holdout'"):
        world.tasks("holdout")
    with pytest.raises(KeyError, match="train_999_1"):
        world.open("train_999_1", 0)


def test_the_prompt_is_short_and_ends_with_the_instruction(world, episode):
    assert [message["role"] for message in episode.prompt] == ["system", "user"]
    assert episode.prompt[1]["content"] == world.tasks("train")[0].instruction
    assert len(" ".join(message["content"] for message in episode.prompt)) < 200


def test_a_turn_without_code_says_what_to_do(episode):
    seen = episode.step("I think about it.")
    assert (seen.text, seen.failed, seen.done, seen.code_blocks) == (NO_CODE, True, False, 0)


def test_only_the_first_of_several_blocks_runs(episode):
    seen = episode.step(f"First.\n{turn('x=3')}\nThen.\n{turn('x=4')}")
    assert (seen.text, seen.ending, seen.code_blocks) == ("Execution successful.", f"\n{ONLY_FIRST}", 2)
    assert episode.step(turn("print(x)")).text == "3"


@pytest.mark.parametrize(
    "text", ["```python3\nprint(1)\n```", "```py\nprint(1)```", "```python\nprint(1)", "``` python print(1)\n```"]
)
def test_fences_are_read_generously(episode, text):
    assert episode.step(text).text == "1"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("print(1", "SyntaxError: '(' was never closed"),
        ("x=\x00", f"{NULL_BYTE}: source code string cannot contain null bytes"),
        ("1/0", "ZeroDivisionError: division by zero"),
        ("apis.notes.login(password=missing)", "NameError: name 'missing' is not defined"),
        ("apis.nowhere.find(title='a')", "ApiError: There is no app nowhere."),
        ("apis.notes.login()", "ApiError: notes.login takes password."),
    ],
)
def test_broken_code_gives_one_short_line(episode, code, error):
    seen = episode.step(turn(code))
    assert seen.failed
    assert not seen.done
    assert seen.text.startswith(f"Execution failed. {error}")
    assert "\n" not in seen.text


def test_what_was_printed_before_an_error_is_shown(episode):
    seen = episode.step(turn("print('seen')\n1/0"))
    assert (seen.text, seen.ending) == ("seen", "\nExecution failed. ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        ("1/0\n```", "Execution failed. ZeroDivisionError: division by zero"),
        ("```\n```python\nprint(2)\n```", ONLY_FIRST),
        ("1/0\n```\n```python\nprint(2)\n```", f"Execution failed. ZeroDivisionError: division by zero\n{ONLY_FIRST}"),
    ],
)
def test_what_decides_is_shown_behind_much_output(episode, end, shown):
    chat = load_chat_format(Path("data/base_policies/pocket"))
    seen = episode.step(f"```python\nfor i in range(300): print('line', i)\n{end}")
    text = shown_observation(chat, seen.text, seen.ending, closed=True, max_tokens=256).text
    first, note, *last = text.splitlines()[-3 - shown.count("\n") - 1 :]
    assert first.startswith("line ") and last[0] == "line 299" and "\n".join(last[1:]) == shown
    assert note == f"[output cut: {300 - 1 - int(first.split()[1]) - 1} lines left out]"


def test_an_error_that_is_too_long_says_so(episode):
    seen = episode.step(turn("raise ValueError('x' * 10000)"))
    assert seen.text.endswith("x ... (10012 characters in all)")


def test_calls_are_logged_with_their_failures(episode):
    seen = episode.step(turn('apis.supervisor.passwords()\napis.notes.login(password="dummy")'))
    assert seen.api_calls == ("supervisor.passwords", "notes.login")
    assert seen.failed_api_calls == ("notes.login",)
    assert episode.step(turn("x=1")).api_calls == ()


def test_a_caught_api_error_is_no_failed_turn(episode):
    seen = episode.step(turn("try:\n    apis.notes.login(password='a')\nexcept Exception:\n    print('caught')"))
    assert (seen.text, seen.failed, seen.failed_api_calls) == ("caught", False, ("notes.login",))


def test_huge_output_is_cut(episode):
    assert len(episode.step(turn("print('a' * 10**7)")).text) < 25_000


def test_names_stay_between_turns_and_episodes_are_apart(world, episode):
    episode.step(turn("kept=5"))
    assert episode.step(turn("print(kept)")).text == "5"
    other = world.open("train_001_1", seed=0)
    assert other.step(turn("print(kept)")).failed
    other.close()


def test_agent_code_cannot_reach_the_state(episode):
    episode.step(turn("apis.__dict__.clear() if hasattr(apis, '__dict__') else None"))
    seen = episode.step(
        turn("import gc\nprint(any(type(o).__name__ in ('Server', 'Problem') for o in gc.get_objects()))")
    )
    assert "True" not in seen.text


def test_giving_up_ends_the_episode_without_success(episode):
    seen = episode.step(turn('apis.supervisor.complete_task(status="fail")'))
    assert seen.done
    assert "the task was completed, not given up" in episode.evaluate().failed


def test_code_that_ends_its_process_ends_the_episode(world):
    episode = world.open("train_001_1", seed=0)
    with pytest.raises(ExecutionTimeout):
        episode.step(turn("import os\nos._exit(0)"))
    episode.close()
