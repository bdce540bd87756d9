"""The tasks of an OpenEnv server, from `world.openenv.splits` to one line each in data/world."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.core.config.splits import SPLITS, Split
from tasks.core.records.files import ArtifactError
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import GameTask, write_tasks
from tasks.core.worlds.openenv.kind import OpenEnvConfig, OpenEnvScenario, Reset

_SEEDS = 2**31
"""Many environments use it as a seed for NumPy, which takes 32 bits."""


class ResetTask(GameTask):
    """The arguments with which to reset a session, and the task's description."""

    instruction: str
    reset: Reset
    solution: tuple[str, ...]


def write_openenv(config: OpenEnvConfig, seed: int, folder: Path) -> None:
    """Write all splits to `folder`. Raises ArtifactError if the section is incomplete."""
    if not config.action:
        raise ArtifactError("params.yaml: world.openenv.action is empty; name the fields of an action")
    for split in SPLITS:
        if not getattr(config.splits, split):
            raise ArtifactError(f"params.yaml: world.openenv.splits.{split} is empty; name a scenario for it")
    write_tasks(folder, {split: list(_listed(getattr(config.splits, split), split, seed)) for split in SPLITS})


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Return `template` with those strings replaced that are keys of `values` ("$seed"), at any depth."""
    match template:
        case str():
            return values.get(template, template)
        case dict():
            return {name: filled(value, values) for name, value in template.items()}
        case list():
            return [filled(value, values) for value in template]
        case _:
            return template


def _listed(entries: tuple[OpenEnvScenario, ...], split: Split, seed: int) -> Iterator[ResetTask]:
    scenarios = 0
    for entry in entries:
        for repeat in range(entry.count):
            scenarios += 1
            scenario_id = f"{split}_{scenarios:03d}"
            for number, task in enumerate(entry.tasks):
                drawn = derive_seed(seed, "openenv", split, scenarios, number) % _SEEDS
                index = entry.first + repeat * len(entry.tasks) + number
                yield ResetTask(
                    task_id=f"{scenario_id}_{number + 1}",
                    scenario_id=scenario_id,
                    difficulty=entry.difficulty,
                    split=split,
                    instruction=entry.instruction,
                    reset=filled(task.reset, {"$seed": drawn, "$index": index}),
                    solution=task.solution,
                )
