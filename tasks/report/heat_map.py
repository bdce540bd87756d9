"""The outcome of every training task in every iteration, as inline SVG: rows are tasks, columns iterations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tasks.core.pages.charts import Points, nice_ticks
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.signal_coverage import SuccessCounts

ROW_HEIGHT = 14
"""Height of a row in pixels, as in the style sheet."""


@dataclass(frozen=True)
class Cell:
    """One task in one iteration, over its rollouts that are not void."""

    mean_return: float
    success_share: float
    rollouts: int = 1
    varies: bool = False
    """Whether the returns differ, so that the group carries a signal."""


TaskProgress = Sequence[tuple[str, Mapping[int, Cell]]]
"""(task id, {iteration: cell}) for each training task."""


def heat_map(rows: TaskProgress, last: int) -> str:
    """Return both maps, mean return and share of successes; the page shows one. Darker is more, blank was not drawn.

    One path per shade keeps it small.
    """
    labels = "".join(f"<li>{escape(task)}</li>" for task, _ in rows)
    maps = "".join(f'<g class="{name}">{_squares(rows, name)}</g>' for name in ("mean_return", "success_share") if rows)
    ticks = "".join(
        f'<span style="left:{100 * (t - 0.5) / last:.2f}%">{t:g}</span>' for t in nice_ticks(0, last) if 1 <= t <= last
    )
    void = " ".join(VOID_REASONS)
    return (
        f'<div id="heat-figure">{_LEGEND}<div id="heat" data-shows="mean_return"><ol>{labels}</ol>'
        f'<div><div class="ticks">{ticks}</div><svg id="heat-plot" data-last="{last}" data-void="{void}" '
        f'viewBox="0 0 {last} {max(len(rows), 1)}" preserveAspectRatio="none" '
        f'style="height:{len(rows) * ROW_HEIGHT}px" role="img" aria-label="outcome by task and iteration">{maps}</svg>'
        f'<div class="ticks">{ticks}</div></div></div><div id="heat-note" hidden></div></div>'
    )


def _squares(rows: TaskProgress, name: str) -> str:
    levels: dict[int, list[str]] = {}
    for y, (_, cells) in enumerate(rows):
        for iteration, cell in cells.items():
            levels.setdefault(round(getattr(cell, name) * 10), []).append(f"M{iteration - 1} {y}h1v1h-1z")
    return "".join(f'<path class="h{level}" d="{"".join(levels[level])}"/>' for level in sorted(levels))


_SCALE = "".join(f'<i class="k{level}"></i>' for level in range(11))
_LEGEND = (
    '<div class="legend"><label><input type="radio" name="shows" value="mean_return" checked> mean return</label>'
    '<label><input type="radio" name="shows" value="success_share"> share of successes</label>'
    f'<span class="scale">0 {_SCALE} 1; blank: not drawn</span>'
    '<span class="hint">Point at a square to see what it is, click to read its rollouts.</span></div>'
)


def coverage_curves(progress: TaskProgress, last: int) -> Mapping[str, Points]:
    """Return the lines of the chart over the iterations 1 .. `last`; a line omits iterations without data for it.

    Expected: for an iteration's groups, each with its number of rollouts, from the rollouts played before it.
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
            for name, flags in (("by success", mixed), ("by return", varied)):
                observed[name].append((iteration, sum(flags) / len(flags)))
        for task, cell in drawn.items():
            counts.add(task, cell.success_share * cell.rollouts, cell.rollouts)
    return {"expected": expected, **observed}


def _expected(groups: Mapping[str, Cell], counts: SuccessCounts) -> float:
    """Return the mean over the groups of the probability of a signal."""
    shares = {size: counts.shares(size) for size in {cell.rollouts for cell in groups.values()}}
    return sum(shares[cell.rollouts][task] for task, cell in groups.items()) / len(groups)
