"""Share of groups that carry a signal, over the iterations: expected from earlier success rates, and observed. Pure."""

from collections.abc import Mapping

from tasks.core.pages.charts import Points
from tasks.core.signal_coverage import SuccessCounts
from tasks.report.heat_map import Cell, TaskProgress


def coverage_curves(progress: TaskProgress, last: int) -> Mapping[str, Points]:
    """The lines of the chart over the iterations 1 .. `last`; a line lacks the iterations that say nothing of it.

    Expected: of an iteration's groups, each with its number of rollouts, from what was played before it.
    """
    expected: list[tuple[int, float]] = []
    observed: dict[str, list[tuple[int, float]]] = {"by success": [], "by return": []}
    counts = SuccessCounts(task for task, _ in progress)
    for iteration in range(1, last + 1):
        drawn = {task: cells[iteration] for task, cells in progress if iteration in cells}
        groups = {task: cell for task, cell in drawn.items() if cell.rollouts > 1}
        if groups:
            if counts:
                expected.append((iteration, _expected(groups, counts)))
            mixed = [0 < cell.success_share < 1 for cell in groups.values()]
            varied = [cell.varies for cell in groups.values()]
            for name, found in (("by success", mixed), ("by return", varied)):
                observed[name].append((iteration, sum(found) / len(found)))
        for task, cell in drawn.items():
            counts.add(task, cell.success_share * cell.rollouts, cell.rollouts)
    return {"expected": expected, **observed}


def _expected(groups: Mapping[str, Cell], counts: SuccessCounts) -> float:
    """Mean over the groups of the probability of a signal."""
    shares = {size: counts.shares(size) for size in {cell.rollouts for cell in groups.values()}}
    return sum(shares[cell.rollouts][task] for task, cell in groups.items()) / len(groups)
