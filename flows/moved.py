"""Old names of commands, which work until version 0.2: `python -m flows.configure` is `loopline configure`."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def moved(command: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `loopline COMMAND` in place of this process, with its arguments or the given ones, and name it on stderr."""
    print(
        f"this is now `loopline {command}`; `python -m flows...` works until version 0.2", file=sys.stderr, flush=True
    )
    taken = sys.argv[1:] if arguments is None else arguments
    os.execv(sys.executable, [sys.executable, "-m", "flows.cli", *command.split(), *taken])
