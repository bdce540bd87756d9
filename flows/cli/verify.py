"""`loopline verify`: the finished run beside a published one."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import command, refusing


def _whole(published: str) -> str:
    """Return the whole path of a folder or lock: commands work in the checkout, not where they were called."""
    return str(Path(published).resolve()) if "/" in published else published


@command("verify", "Look")
def verify(
    published: Annotated[
        str,
        typer.Argument(
            metavar="LOCK", callback=_whole, help="Name of a published run, or the path of its folder or dvc.lock."
        ),
    ] = "default",
) -> int:
    """Compare the finished run with a published one, byte for byte.

    It goes through the artifacts in the pipeline's order and leaves clocks out. It names the first that differs, in
    which column of which row, and what differs in machine, packages, knobs and code. Where nothing ran yet and DVC has
    a remote, the run is fetched. Exit code 1: something differs, or the run is not whole; 2: there is no such
    published run.

    \b
    loopline verify default
    loopline verify docs/results/published/smoke/dvc.lock
    """
    from flows.published.verifying import UnknownRun, find_run
    from flows.published.verifying import verify as verified

    with refusing(UnknownRun):
        run = find_run(published, Path.cwd())
    answer = verified(run, Path.cwd())
    print("\n".join(answer.lines))
    return 0 if answer.holds else 1
