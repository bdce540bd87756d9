"""The recorded runs of `collapse_runs.py`, as they are read."""

import csv
import itertools
from pathlib import Path
from typing import NamedTuple

from tasks.core.collapse import rules
from tasks.core.records.training import WatchedStats

RECORDED = Path(rules.__file__).with_name("recorded_runs.csv")
COUNTED_FROM = 10
"""Seeds below it are to fit on, the others to count on."""


class Run(NamedTuple):
    """A recorded run."""

    profile: str
    kind: str
    seed: int
    history: list[WatchedStats]


def read_runs() -> list[Run]:
    """All recorded runs, in the order of their recording."""
    if not RECORDED.exists():
        return []
    with RECORDED.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    groups = itertools.groupby(rows, lambda row: (row["profile"], row["kind"], int(row["seed"])))
    return [Run(*run, [_figures(row) for row in group]) for run, group in groups]


def _figures(row: dict[str, str]) -> WatchedStats:
    return WatchedStats.model_validate({n: float(row[n]) if row[n] else None for n in WatchedStats.model_fields})
