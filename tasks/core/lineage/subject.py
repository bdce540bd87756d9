"""The subject of a question of lineage: a checkpoint, a metric, a rollout or any artifact, by the name a user gives."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.core.config.splits import TEST_SPLITS
from tasks.core.records.documents import dotted_numbers, read_document
from tasks.core.records.files import read_json
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS, SCORED_ROLLOUTS, SELECTED_POLICY
from tasks.core.records.scores import Selection
from tasks.core.records.tables import read_table

_ITERATION = re.compile(r"i\d{3}")
_AS_MLFLOW_HAS_IT = tuple(f"{split}/" for split in ("dev", *TEST_SPLITS))
FORMS = "a checkpoint (i012, selected), a metric (test_normal.tgc, dev.tgc, i003.kl), a rollout (i003:TASK:0) or a path"


class UnknownSubject(ValueError):  # noqa: N818
    """A name that lineage does not know; the message lists the names that it knows."""


@dataclass(frozen=True)
class Subject:
    """An artifact, and the part of it that the question is about."""

    path: str
    """Path of the artifact, relative to the project's root."""
    facts: tuple[str, ...] = ()
    """Facts about the question's own object, one line each."""


def find_subject(name: str, layout: Layout) -> Subject:
    """Return the subject that `name` means.

    Raises UnknownSubject, and ArtifactError for an artifact that cannot be read.
    """
    if name == SELECTED_POLICY:
        return Subject(_relative(layout, layout.policy(read_document(layout.selection, Selection).iteration)))
    if _ITERATION.fullmatch(name):
        return Subject(_relative(layout, layout.policy(name)))
    if name.count(":") == 2:
        return _rollout(layout, *name.split(":"))
    if name.startswith(_AS_MLFLOW_HAS_IT):
        name = name.replace("/", ".")
    if "/" not in name and "." in name:
        return _metric(layout, *name.split(".", 1))
    path = Path(name).as_posix()
    if Path(path).parts[:1] != ("data",) and not (layout.root / path).exists():
        raise UnknownSubject(f"{name} names nothing here; expected {FORMS}")
    return Subject(path)


def _metric(layout: Layout, scope: str, name: str) -> Subject:
    if scope in TEST_SPLITS:
        path = layout.score(scope)
    elif scope == "dev":
        path = layout.evaluation(read_document(layout.selection, Selection).iteration)
    elif _ITERATION.fullmatch(scope):
        path = layout.evaluation(scope) if name.startswith("dev.") else layout.metrics(scope)
    else:
        raise UnknownSubject(f"{scope}.{name} is not a metric; expected {FORMS}")
    numbers = dotted_numbers(read_json(path))
    wanted = name.removeprefix("dev.")
    if wanted not in numbers:
        raise UnknownSubject(
            f"{_relative(layout, path)} has no number {wanted!r}; it has: {', '.join(sorted(numbers))}"
        )
    return Subject(_relative(layout, path), (f"{scope}.{name} = {numbers[wanted]:g}",))


def _rollout(layout: Layout, scope: str, task: str, index: str) -> Subject:
    if _ITERATION.fullmatch(scope):
        path, schema, player = layout.rollouts(scope), ROLLOUTS, None
    elif scope in TEST_SPLITS:
        path, schema, player = layout.score_rollouts(scope), SCORED_ROLLOUTS, SELECTED_POLICY
    else:
        raise UnknownSubject(f"{scope}:{task}:{index} is not a rollout; expected {FORMS}")
    rows: list[dict[str, Any]] = read_table(path, schema).drop(["token_ids", "policy_mask", "turn_index"]).to_pylist()
    for row in rows:
        if (row["task_id"], str(row["rollout_index"])) == (task, index) and row.get("policy") == player:
            return Subject(_relative(layout, path), _facts(row))
    tasks = sorted({row["task_id"] for row in rows})
    raise UnknownSubject(f"{_relative(layout, path)} has no rollout {index} of {task!r}; its tasks: {', '.join(tasks)}")


def _facts(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"task {row['task_id']}, scenario {row['scenario_id']}, difficulty {row['difficulty']}, seed {row['seed']}",
        f"return {row['return']:g}, {'solved' if row['success'] else 'not solved'}, ended by {row['end_reason']}",
        f"played by the adapter {row['adapter_digest']} in {row['engine']} ({row['engine_version']})",
    )


def _relative(layout: Layout, path: Path) -> str:
    return path.relative_to(layout.root).as_posix()
