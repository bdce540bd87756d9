"""From a pilot's rollouts to the number of rollouts per task that carries a signal."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tasks.core.records.files import ArtifactError
from tasks.core.records.schemas import ROLLOUTS, VOID_REASONS
from tasks.core.records.tables import read_table
from tasks.core.signal_coverage import MOST_ROLLOUTS, Coverage, coverage

_WANTED = "a pilot must be a run's table of rollouts, such as data/iterations/i001/rollouts.parquet"
SHOWN_GROUPS = (2, 3, 4, 6, 8, 12, 16, 24, 32)


def pilot_coverage(path: Path) -> Coverage:
    """Return success rates of the tasks in a rollouts table, without void rollouts. Raises ArtifactError."""
    table = read_table(path, ROLLOUTS, missing=_WANTED, damaged=_WANTED).select(["task_id", "success", "end_reason"])
    groups: dict[str, list[bool]] = defaultdict(list)
    for row in table.to_pylist():
        if row["end_reason"] not in VOID_REASONS:
            groups[row["task_id"]].append(row["success"])
    try:
        return coverage([sum(group) for group in groups.values()], [len(group) for group in groups.values()])
    except ValueError as error:
        raise ArtifactError(f"{path}: {error}; all of its rollouts are void") from None


def pilot_facts(pilot: Coverage, budget: int, wanted: float) -> Iterator[tuple[str, str]]:
    """Yield the pilot's advice on the number of rollouts per task, as (title, text).

    `budget`: rollouts of an iteration; `wanted`: share of groups with a signal.
    """
    yield "pilot", f"{len(pilot.alpha)} tasks; an iteration of {budget} rollouts, each task at most once"
    for rollouts in SHOWN_GROUPS:
        if rollouts <= budget:
            signals = pilot.signals(budget, rollouts)
            yield f"  {rollouts} rollouts a task", f"{pilot.share(rollouts):.0%} of the groups, {signals:.1f} a budget"
    smallest = pilot.smallest_group(wanted)
    reached = f"{smallest} rollouts a task" if smallest else f"not with {MOST_ROLLOUTS} rollouts a task"
    yield f"a signal in {wanted:.0%}", reached
    yield "most groups", f"{pilot.best_group(budget)} rollouts a task give the most groups with a signal"
