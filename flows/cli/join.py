"""`loopline join`: another machine's part in updates (flows/workers/worker_node.py)."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import command


@command("join", "Serve")
def join(
    project: Annotated[
        Path | None,
        typer.Argument(resolve_path=True, help="The project's folder, which all machines share; by default this one."),
    ] = None,
) -> int:
    """Take part in a project's distributed updates.

    Runs until it is stopped, on every machine except the pipeline's own.

    \b
    loopline join /mnt/project
    """
    from flows.workers.worker_node import take_part

    take_part(project or Path.cwd())
    return 0
