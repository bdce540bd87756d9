"""Authoring a root of our own with the package itself: runs the generator in AppWorld's interpreter."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tqdm import tqdm

from tasks.core.config.splits import Split
from tasks.core.processes.resources import SPARING
from tasks.core.records.files import replacing
from tasks.core.worlds.appworld.root.layout import engine_variables

_PACKAGE = Path(__file__).parents[1]
_START = (
    f"{SPARING}; import json, sys; "
    "sys.path.append({package!r}); "
    "from inside.authoring.main import author_root; author_root(**json.loads({arguments!r}))"
)
_SHOWN_LINES = 20


class AuthoringFailed(RuntimeError):  # noqa: N818
    """The generator stopped; the message holds its last lines. A bug: the same seed fails again."""


def author_root(root: Path, python: Path, seed: int, counts: Mapping[Split, int] | Mapping[str, int]) -> None:
    """Write a root with `counts` tasks per split to `root`, whole or not at all. Same arguments, same bytes.

    Beside the four splits there may be `demonstrations`, with the words of train and all templates that may be shown.

    `python` is AppWorld's interpreter (`interpreter.python_executable`). Raises AuthoringFailed, and ValueError for
    counts that are no whole number of scenarios of three tasks.
    """
    for split, count in counts.items():
        if count <= 0 or count % 3:
            raise ValueError(f"{split}: {count} tasks; a split has a positive number of scenarios of 3 tasks")
    with replacing(root) as temporary:
        temporary.mkdir()
        _run_generator(temporary, python, seed, counts)


def _run_generator(root: Path, python: Path, seed: int, counts: Mapping[Split, int] | Mapping[str, int]) -> None:
    arguments = json.dumps({"root": str(root.resolve()), "seed": seed, "counts": dict(counts)})
    command = [str(python), "-P", "-c", _START.format(package=str(_PACKAGE), arguments=arguments)]
    with subprocess.Popen(
        command,
        env=engine_variables(python, root),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=root,
        start_new_session=True,
    ) as process:
        try:
            said = _follow(process, sum(counts.values()))
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # the generator's own processes too
            raise
    if process.returncode != 0:
        raise AuthoringFailed(f"the generator of the AppWorld root failed (exit {process.returncode}):\n{said}")


def _follow(process: "subprocess.Popen[str]", total: int) -> str:
    """Move the bar at each `done` line; returns the last other lines."""
    assert process.stdout is not None
    others: list[str] = []
    with tqdm(total=total, desc="authoring AppWorld tasks", unit="task", leave=False) as bar:
        for line in process.stdout:
            if line == "done\n":
                bar.update()
            else:
                others = [*others, line][-_SHOWN_LINES:]
    return "".join(others)
