"""`loopline watch`: how far a run is, as a line and a chart of its scores on dev, and the machines at work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.command import command

if TYPE_CHECKING:
    from flows.run_progress import Progress


_HEIGHT, _WIDTH = 10, 60
_REFRESH_S = 2.0
_PATIENCE_S = 20.0
"""How long nothing may be at work before the run counts as ended."""


@command("watch", "Run")
def watch() -> int:
    """Show how far the run in this checkout is, until it ends.

    Shows the iteration, the time that is left, the machines at work where there are several, and the scores on dev so
    far. It reads files only, so that it works from another terminal, whatever command runs the pipeline. Where stdout
    is no terminal it prints once.

    \b
    loopline watch
    """
    from rich.console import Console
    from rich.live import Live

    from flows.run_progress import read_progress

    root, console = Path.cwd(), Console(highlight=False)
    progress = read_progress(root)
    if not console.is_terminal or progress.at_work is None:
        print(page(progress))
        return 0
    with Live(page(progress), console=console, auto_refresh=False) as live:
        idle_s = 0.0
        while idle_s < _PATIENCE_S:  # between two stages of `dvc repro` nothing holds the checkout
            time.sleep(_REFRESH_S)
            progress = read_progress(root)
            idle_s = 0.0 if progress.at_work else idle_s + _REFRESH_S
            live.update(page(progress), refresh=True)
    return 0


def page(progress: Progress) -> str:
    """Return the progress as text: a line, and a chart once there are scores."""
    from tasks.core.processes.shown_work import duration

    done, left = len(progress.ended), progress.left_s
    state = f"at work: {progress.at_work}" if progress.at_work else "nothing is at work"
    estimate = "" if progress.at_work is None or not left else f", about {duration(left)} left until the last update"
    lines = [f"{progress.title}: {done} of {progress.total} iterations{estimate}", state]
    lines += [f"  {host}: {work}" for host, work in progress.hosts.items()]
    if progress.dev_tgc:
        lines += ["", "TGC on dev, percent", *chart(progress.dev_tgc, progress.total)]
    return "\n".join(lines)


def chart(points: Mapping[int, float], last: int) -> Iterator[str]:
    """Yield the lines of a chart of percentages over iterations 0 to `last`."""
    low, high = min(points.values()), max(points.values())
    span = high - low or 1.0
    rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for iteration, value in points.items():
        column = round(iteration * (_WIDTH - 1) / last) if last else 0
        rows[round((high - value) / span * (_HEIGHT - 1))][column] = "●"
    for number, row in enumerate(rows):
        label = high if number == 0 else low if number == _HEIGHT - 1 else None
        yield f"{'' if label is None else f'{label:.1f}':>6} │{''.join(row).rstrip()}"
    yield f"{'':6} └{'─' * _WIDTH}"
    yield f"{'':8}0{last:>{_WIDTH - 1}}"
