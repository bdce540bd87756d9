"""The package's tasks, divided into our splits. A task is a set of faults; no two splits share one."""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from tasks.core.config.splits import Split
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import GameTask

Train = Literal["official", "full"]
DEV = {"mms_issue": 20, "mobile_data_issue": 20, "service_issue": 8}
"""Tasks of dev by their kind. `full` has 47 service tasks, of which official train and test take 29."""
CHALLENGES = 240
FEW, MANY = 3, 6
"""Difficulty by the number of faults: 1 up to 3, 2 up to 5, 3 from 6 on."""


class Tau2Task(GameTask):
    """A task as data/world/ lists it; its id is the package's."""

    instruction: str
    """The ticket; with a user, why the user calls."""


def faults(task_id: str) -> str:
    """Return a task's set of faults with its kind: the id without its persona, which changes nothing without a user."""
    return task_id.partition("[PERSONA:")[0]


def kind(task_id: str) -> str:
    """Return mms_issue, mobile_data_issue or service_issue."""
    return task_id.removeprefix("[").partition("]")[0]


def difficulty(task_id: str) -> int:
    """Return the difficulty by number of faults."""
    number = faults(task_id).count("|") + 1
    return 1 if number <= FEW else 2 if number < MANY else 3


def parted(
    listed: Iterable[Mapping[str, str]], official: Mapping[str, Sequence[str]], train: Train, seed: int
) -> dict[Split, list[Tau2Task]]:
    """Return the tasks by split. Raises ValueError for a task without a ticket.

    test_normal is the official test. dev and test_challenge are drawn by `seed` from the tasks of `full` whose faults
    are in neither official split: dev by kind, test_challenge among those of difficulty 3. train is the official one,
    or all that is left.
    """
    tickets = {row["id"]: row["ticket"] for row in listed}
    if missing := [task_id for task_id, ticket in tickets.items() if not ticket]:
        raise ValueError(f"{missing[0]} has no ticket, so that no agent can solve it without a user")
    used = {faults(task_id) for name in ("train", "test") for task_id in official[name]}
    left = [task_id for task_id in tickets if faults(task_id) not in used]
    random.Random(derive_seed(seed, "tau2 splits")).shuffle(left)
    dev = [task_id for name, count in DEV.items() for task_id in [one for one in left if kind(one) == name][:count]]
    left = [task_id for task_id in left if task_id not in set(dev)]
    challenge = [task_id for task_id in left if difficulty(task_id) == 3][:CHALLENGES]
    rest = [task_id for task_id in left if task_id not in set(challenge)]
    ids: dict[Split, Sequence[str]] = {
        "train": official["train"] if train == "official" else sorted([*official["train"], *rest]),
        "dev": dev,
        "test_normal": official["test"],
        "test_challenge": challenge,
    }
    return {
        split: [_task(name, split, tickets[name], faults(name), difficulty(name)) for name in part]
        for split, part in ids.items()
    }


def official_tasks(
    listed: Iterable[Mapping[str, str]], official: Mapping[str, Sequence[str]]
) -> dict[Split, list[Tau2Task]]:
    """Return the tasks of a domain that has its official splits alone; each is a scenario of its own, and as hard."""
    reasons = {row["id"]: row["reason"] for row in listed}
    parts: dict[Split, str] = {"train": "train", "dev": "", "test_normal": "test", "test_challenge": ""}
    return {
        split: [_task(task_id, split, reasons[task_id], task_id, 1) for task_id in official.get(name, ())]
        for split, name in parts.items()
    }


def _task(task_id: str, split: Split, text: str, scenario: str, difficulty: int) -> Tau2Task:
    return Tau2Task(task_id=task_id, scenario_id=scenario, difficulty=difficulty, split=split, instruction=text)
