"""Share of groups that carry a signal, over the iterations: expected from earlier success rates, and observed. Pure."""

from collections.abc import Mapping

from tasks.core.signal_coverage import coverage
from tasks.report.charts import Points
from tasks.report.heat_map import Cell, TaskProgress

MEMORY = 0.5
"""Weight of a task's earlier rollouts each time that it is drawn: the policy changes, so its rates do."""


def coverage_curves(progress: TaskProgress, last: int) -> Mapping[str, Points]:
    """The lines of the chart over the iterations 1 .. `last`; a line lacks the iterations that say nothing of it.

    Expected: of an iteration's groups, each with its number of rollouts, from what was played before it.
    """
    expected: list[tuple[int, float]] = []
    observed: dict[str, list[tuple[int, float]]] = {"by success": [], "by return": []}
    successes, rollouts = dict.fromkeys(dict(progress), 0.0), dict.fromkeys(dict(progress), 0.0)
    for iteration in range(1, last + 1):
        drawn = {task: cells[iteration] for task, cells in progress if iteration in cells}
        groups = {task: cell for task, cell in drawn.items() if cell.rollouts > 1}
        if groups:
            if any(rollouts.values()):
                expected.append((iteration, _expected(groups, successes, rollouts)))
            mixed = [0 < cell.success_share < 1 for cell in groups.values()]
            varied = [cell.varies for cell in groups.values()]
            for name, found in (("by success", mixed), ("by return", varied)):
                observed[name].append((iteration, sum(found) / len(found)))
        for task, cell in drawn.items():
            successes[task] = MEMORY * successes[task] + cell.success_share * cell.rollouts
            rollouts[task] = MEMORY * rollouts[task] + cell.rollouts
    return {"expected": expected, **observed}


def _expected(groups: Mapping[str, Cell], successes: Mapping[str, float], rollouts: Mapping[str, float]) -> float:
    """Mean over the groups of the probability of a signal; all tasks that were played shape the prior."""
    tasks = list(rollouts)
    found = coverage([successes[task] for task in tasks], [rollouts[task] for task in tasks])
    shares = {size: found.by_task(size) for size in {cell.rollouts for cell in groups.values()}}
    place = {task: index for index, task in enumerate(tasks)}
    return float(sum(shares[cell.rollouts][place[task]] for task, cell in groups.items()) / len(groups))
