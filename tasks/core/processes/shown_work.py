"""How far a long piece of work is: a bar in a terminal, a line for each tenth in a file."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process

from tqdm import tqdm

QUIET_S, FIRST_S, LONGEST_S = 10.0, 30.0, 600.0
"""Seconds after which a tenth that is done has a line, so that short work has none and long work ten; after which the
first unit has one, so that a log shows within a minute that work goes on; and at most between two lines."""


def duration(seconds: float) -> str:
    """Return seconds in the two largest units that they fill: "1 h 5 min"."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class ShownWork:
    """Work that shows on stderr how far it is."""

    def __init__(self, name: str, total: int, unit: str, leave: bool) -> None:
        self.total = total
        """Units of the whole; it may grow."""
        self._name, self._unit, self._done = name, unit, 0
        self._began = self._said_at = time.monotonic()
        self._tenths = 0
        hidden = None if parent_process() is None else True  # several processes would overwrite each other's bars
        self._bar = tqdm(total=total, desc=name, unit=unit, leave=leave, disable=hidden)
        self._writes_lines = hidden is None and bool(self._bar.disable)

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count `count` more units as done; `note` follows in a bar."""
        self._done += count
        self._bar.total = self.total
        if note:
            self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(count)
        tenths = 10 * self._done // max(self.total, 1)
        now = time.monotonic()
        due = QUIET_S if tenths > self._tenths else FIRST_S if self._said_at == self._began else LONGEST_S
        if self._writes_lines and now - self._said_at >= due:
            self._tenths, self._said_at = tenths, now
            print(self._line(now - self._began), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove or leave the bar."""
        self._bar.close()

    def _line(self, seconds: float) -> str:
        share = f"{self._name}: {self._done:,} of {self.total:,} {self._unit}s, {duration(seconds)}"
        left = seconds / self._done * (self.total - self._done)
        return f"{share}, about {duration(left)} left" if self._done < self.total else share


@contextmanager
def shown_work(name: str, total: int, unit: str, *, leave: bool = False) -> Iterator[ShownWork]:
    """Show work of `total` units until the end of the block; with `leave` a bar stays when it is done."""
    work = ShownWork(name, total, unit, leave)
    try:
        yield work
    finally:
        work.close()
