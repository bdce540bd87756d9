"""Early stop by length: the longest rollouts of an iteration are cut, and which they are does not depend on the clock.

A rollout's length is the number of its sampled tokens. The limit is the least length within which enough rollouts end.
It follows from the rollouts alone, so any number of shards and of concurrent episodes cuts the same ones. Whoever
knows some of the ended rollouts knows a limit that is no shorter, and may give up a rollout beyond it at once.
"""

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.core.config.collection import EarlyStop
from tasks.core.records.schemas import SEQUENCES, TOKEN_COLUMNS, TURN_COLUMNS, VOID_REASONS
from tasks.core.rollouts.planning import PlannedRollout

Row = dict[str, Any]
CUT_REASON = "cut_by_early_stop"
_READ_EVERY_S = 0.2


def length_of(row: Mapping[str, Any]) -> int:
    """Return how many of a rollout's tokens were sampled."""
    return sum(row["policy_mask"])


def limit_of(stop: EarlyStop, planned: Sequence[str], ended: Iterable[tuple[str, int]]) -> float:
    """Return the least length within which `stop` is met by the `ended` rollouts; infinity while they are too few.

    planned: the task of each rollout; ended: task and length of those that are over and not void.
    """
    by_task: dict[str, list[int]] = defaultdict(list)
    for task, length in ended:
        by_task[task].append(length)
    lengths = sorted(length for task in by_task.values() for length in task)
    wanted = math.ceil(stop.share * len(planned))
    if len(lengths) < wanted or any(len(by_task[task]) < stop.min_per_task for task in planned):
        return math.inf
    each = [sorted(by_task[task])[stop.min_per_task - 1] for task in set(planned)]
    return max([*lengths[max(0, wanted - 1) : wanted], *each])


def cut_longer(stop: EarlyStop, rows: Sequence[Row]) -> list[Row]:
    """Return all rows of an iteration, in which the rollouts beyond the limit are void and empty.

    So is what was played of rollouts that were given up: how far each had got does depend on the clock.
    """
    ended = [(row["task_id"], length_of(row)) for row in rows if row["end_reason"] not in VOID_REASONS]
    limit = limit_of(stop, [row["task_id"] for row in rows], ended)
    return [_cut(row) if row["end_reason"] == CUT_REASON or _beyond(row, limit) else row for row in rows]


def _beyond(row: Row, limit: float) -> bool:
    return row["end_reason"] not in VOID_REASONS and length_of(row) > limit


def _cut(row: Row) -> Row:
    empty: Row = {column: [] for column in (*TOKEN_COLUMNS, "turns", "tests_passed", "tests_failed")}
    kept = {column: value for column, value in row.items() if column not in TURN_COLUMNS}
    return (
        kept | empty | {SEQUENCES: [0], "return": 0.0, "success": False, "end_reason": CUT_REASON, "world_retries": 0}
    )


@dataclass
class LengthRule:
    """The limit as one shard knows it, which tells the others of its ended rollouts through files. Picklable."""

    stop: EarlyStop
    planned: tuple[str, ...]
    """The task of each rollout, over all shards."""
    folder: Path | None = None
    """Where shards tell each other; None for a single one. A late or lost message costs time and changes nothing."""
    name: str = ""
    """The shard's own file."""
    _ended: list[tuple[str, int]] = field(default_factory=list)
    _told: list[tuple[str, int]] = field(default_factory=list)
    _read_at: float = -math.inf

    def add(self, row: Row) -> None:
        """Take note of a rollout that is over."""
        if row["end_reason"] in VOID_REASONS:
            return
        self._ended.append((row["task_id"], length_of(row)))
        if self.folder is not None:
            with (self.folder / self.name).open("a", encoding="utf-8") as file:
                file.write(json.dumps(self._ended[-1]) + "\n")

    def limit(self) -> float:
        """Return a limit that is no shorter than the one that holds in the end."""
        if self.folder is not None and time.monotonic() - self._read_at >= _READ_EVERY_S:
            others = (path for path in self.folder.iterdir() if path.name != self.name)
            self._told = [ended for path in others for ended in _messages(path)]
            self._read_at = time.monotonic()
        return limit_of(self.stop, self.planned, [*self._ended, *self._told])


def _messages(path: Path) -> list[tuple[str, int]]:
    """Return what another shard has told; its last line may be half written."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [(task, length) for task, length in map(json.loads, lines)]


def rule_of(stop: EarlyStop | None, planned: Sequence[PlannedRollout]) -> LengthRule | None:
    """Return the rule for rollouts that are played in one shard."""
    return None if stop is None else LengthRule(stop, tuple(rollout.task.task_id for rollout in planned))
