"""The GPU check's report: a verdict for each goal, as a table and as results/gpu/report.json."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from gpu.goals import GOALS, Figures, Goal, Unmeasured

Verdict = Literal["pass", "fail", "seen", "not run", "failed"]
IN_LITTLE = "in little on a CPU"


class Line(NamedTuple):
    """A goal and what became of it."""

    part: str
    name: str
    goal: str
    figure: str | None
    verdict: Verdict
    """pass or fail; seen: there is no goal; not run: nothing was measured; failed: the part ended in an error."""
    reason: str
    device: str | None


def judge(goal: Goal, figures: Figures | None) -> Line:
    """Compare the part's figures with the goal; None: the part never ran here."""
    if figures is None:
        return Line(*goal[:3], None, "not run", "never ran", None)
    device, needs_a_gpu = figures.get("device"), figures.get("cuda") is None and not goal.anywhere
    try:
        value, text = goal.read(figures)
    except Unmeasured as reason:
        verdict: Verdict = "failed" if "failed" in figures else "not run"
        why = IN_LITTLE if needs_a_gpu and verdict == "not run" else str(reason)
        return Line(*goal[:3], None, verdict, why, device)
    if needs_a_gpu:
        return Line(*goal[:3], text, "not run", IN_LITTLE, device)
    if goal.holds is None:
        return Line(*goal[:3], text, "seen", "", device)
    return Line(*goal[:3], text, "pass" if goal.holds(value) else "fail", "", device)


def lines_of(folder: Path) -> list[Line]:
    """Return a line for each goal, from the parts' files in `folder`."""
    figures = {goal.part: read_part(folder, goal.part) for goal in GOALS}
    return [judge(goal, figures[goal.part]) for goal in GOALS]


def read_part(folder: Path, part: str) -> Figures | None:
    """Return the figures of a part; None where there are none."""
    file = folder / f"{part}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def table(lines: Sequence[Line]) -> str:
    """Return the lines side by side, with a count of the verdicts at the end."""
    rows = [("line", "goal", "figure", "verdict", "device, or why")]
    rows += [
        (line.name, line.goal, line.figure or "-", line.verdict, _short(line.reason or line.device or ""))
        for line in lines
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    text = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows]
    verdicts = [line.verdict for line in lines]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    return "\n".join([*text, counts])


def _short(reason: str) -> str:
    """Return the last line, where a traceback says what happened."""
    return (reason.strip().splitlines() or [""])[-1][:100]
