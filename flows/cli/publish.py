"""`loopline publish`: a finished run, so that others can verify theirs."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import command


@command("publish", "Look")
def publish(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Folder in docs/results/published; it is written anew.")],
) -> int:
    """Publish the finished run, so that others can verify theirs.

    Writes its dvc.lock, digests of the content of all artifacts, and its machine, packages, knobs and commit. The code
    must be the code that ran. Exit code 1: the run is not whole.

    \b
    loopline publish default
    """
    from flows.published.publishing import publish as published

    print(published(Path.cwd(), name))
    return 0
