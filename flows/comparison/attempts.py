"""Cost of a study's run so far, and the code and parameters that it was made from: two small files next to it.

They lie in the workspace's .loopline folder, outlive a kill -9, and are no artifacts: wall clocks differ between runs.
"""

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from tasks.core.records.files import replacing


@dataclass(frozen=True)
class MadeFrom:
    """The origin of a run."""

    code: str
    """As in `workspaces.Snapshot`."""
    params: str
    """SHA-256 of its params.yaml."""
    commit: str = field(compare=False)


@dataclass(frozen=True)
class Cost:
    """Seconds of all attempts of the same code and parameters together."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    made_from: MadeFrom | None = None
    """None where nothing was tried yet, or in a file of an older format."""


def read_cost(folder: Path) -> Cost:
    """Return the cost so far, zero where nothing was tried yet."""
    path = _cost_file(folder)
    if not path.exists():
        return Cost()
    content = json.loads(path.read_text(encoding="utf-8"))
    made_from = content.pop("made_from", None)
    return Cost(**content, made_from=None if made_from is None else MadeFrom(**made_from))


def write_cost(folder: Path, cost: Cost) -> None:
    """Write the cost, atomically."""
    with replacing(_cost_file(folder)) as temporary:
        temporary.write_text(json.dumps(asdict(cost)), encoding="utf-8")


def read_stamp(folder: Path) -> MadeFrom | None:
    """Return the origin of the workspace's finished run; None while it has none, or only one of an older format."""
    path = _stamp_file(folder)
    with suppress(FileNotFoundError, ValueError, TypeError):
        return MadeFrom(**json.loads(path.read_text(encoding="utf-8")))
    return None


def write_stamp(folder: Path, made_from: MadeFrom) -> None:
    """Atomic: it says that the run has ended well and was saved."""
    with replacing(_stamp_file(folder)) as temporary:
        temporary.write_text(json.dumps(asdict(made_from)), encoding="utf-8")


def remove_stamp(folder: Path) -> None:
    """Forget that the workspace holds a finished run. Idempotent."""
    _stamp_file(folder).unlink(missing_ok=True)


class Meter:
    """Adds up an attempt's seconds onto those of the attempts before it that were made from the same.

    CPU seconds are what each process that works in the folder had used when it was last seen: what one uses between the
    last reading and its end is missed, little where stages share a process.
    """

    def __init__(self, folder: Path, made_from: MadeFrom) -> None:
        self._folder, self._began = folder, time.monotonic()
        before = read_cost(folder)
        self._before = before if before.made_from == made_from else Cost(made_from=made_from)
        self._seen: dict[tuple[int, float], float] = {}

    def read(self) -> Cost:
        """Return the cost so far, and write it down."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if Path(process.cwd()).is_relative_to(self._folder):
                    times = process.cpu_times()
                    self._seen[process.pid, process.create_time()] = times.user + times.system
        wall, cpu = time.monotonic() - self._began, sum(self._seen.values())
        cost = Cost(self._before.wall_s + wall, self._before.cpu_s + cpu, self._before.made_from)
        write_cost(self._folder, cost)
        return cost


def _cost_file(folder: Path) -> Path:
    return folder / ".loopline" / "cost.json"


def _stamp_file(folder: Path) -> Path:
    return folder / ".loopline" / "made_from"
