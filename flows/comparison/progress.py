"""Progress of the runs of a study: a table on a terminal, a line for each change elsewhere."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from flows.comparison.plan import RunPlan

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"


class Progress(AbstractContextManager["Progress"]):
    """Shows {experiment: (state, iterations done, of)}."""

    def __init__(self, plans: Sequence[RunPlan]) -> None:
        self._plans, self._began = plans, time.monotonic()
        self._first: int | None = None  # iterations that were done before this command; less where a run begins anew
        self._shown: dict[str, str] = {}
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False) if sys.stderr.isatty() else None

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, states: Mapping[str, str], iterations: Mapping[str, tuple[int, int]]) -> None:
        """Draw the table anew, or print what has changed."""
        if self._live:
            self._live.update(self._table(states, iterations), refresh=True)
            return
        for plan in self._plans:
            state = states[plan.experiment]
            if self._shown.get(plan.experiment, WAITING) != state:
                self._console.print(
                    f"{plan.experiment}: {state}; {self._left(states, iterations)}", highlight=False, soft_wrap=True
                )
            self._shown[plan.experiment] = state

    def _table(self, states: Mapping[str, str], iterations: Mapping[str, tuple[int, int]]) -> Table:
        seeds, methods = dict.fromkeys(p.seed for p in self._plans), dict.fromkeys(p.method for p in self._plans)
        table = Table("method", *(f"seed {seed}" for seed in seeds), caption=self._left(states, iterations))
        names = {(plan.method, plan.seed): plan.experiment for plan in self._plans}
        for method in methods:
            cells = (_cell(names[method, seed], states, iterations) for seed in seeds)
            table.add_row(method, *cells)
        return table

    def _left(self, states: Mapping[str, str], iterations: Mapping[str, tuple[int, int]]) -> str:
        """Share of all iterations done, and how long the rest takes at the rate of this command so far."""
        done = sum(done for done, _ in iterations.values())
        total = sum(total for _, total in iterations.values()) or 1
        self._first = done if self._first is None else min(done, self._first)
        passed, gained = time.monotonic() - self._began, done - self._first
        left = f"about {passed / gained * (total - done) / 60:.0f} min left" if gained else "no estimate yet"
        ended = sum(state in (DONE, FAILED) for state in states.values())
        return f"{ended} of {len(states)} runs, {done} of {total} iterations, {left}"


def _cell(name: str, states: Mapping[str, str], iterations: Mapping[str, tuple[int, int]]) -> str:
    done, total = iterations[name]
    return f"{done}/{total}" if states[name] == RUNNING else states[name]
