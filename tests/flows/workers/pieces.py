"""Work for workers in tests, imported by each of them: so this module imports little."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.core.interfaces.stage import StageContext


@dataclass(frozen=True)
class Piece:
    """A piece of work."""

    number: int
    description: str = "piece"

    def __len__(self) -> int:
        return 1


def doubled(context: StageContext[Any], piece: Piece) -> tuple[int, str]:
    return 2 * piece.number, context.key


def failing(context: StageContext[Any], piece: Piece) -> int:
    """Fail for piece 0; else take ten minutes."""
    if piece.number == 0:
        raise ZeroDivisionError("a bug")
    (context.layout.root / f"begun_{piece.number}").write_text(str(os.getpid()))
    for _ in range(6000):
        time.sleep(0.1)
    return 0


def deadly(context: StageContext[Any], piece: Piece) -> int:
    """End the worker in piece 0, as the kernel does where memory is short."""
    if piece.number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return piece.number


def deadly_once(context: StageContext[Any], piece: Piece) -> int:
    """End the worker when piece 0 is begun for the first time."""
    note: Path = context.layout.root / "died"
    if piece.number == 0 and not note.exists():
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return piece.number


def share(context: StageContext[Any], piece: Piece) -> tuple[str, str]:
    return os.environ["PYTHON_CPU_COUNT"], os.environ["OMP_NUM_THREADS"]
