"""`loopline verify`: a published run made anew, or the run of this checkout beside it."""

import shutil
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
            metavar="NAME", callback=_whole, help="Name of a published run, or the path of its folder or dvc.lock."
        ),
    ] = "smoke",
    *,
    here: Annotated[bool, typer.Option("--here", help="Compare the finished run of this checkout.")] = False,
) -> int:
    """Run a published run anew, in a folder of its own with portable bits, and compare byte for byte.

    `smoke` takes about a minute and has the published bytes on any x86-64 processor with AVX2. Clocks are in files of
    their own, which count for nothing. All artifacts that differ are listed, and what differs in machine, packages,
    knobs and code. Exit code 1: an artifact differs; 2: there is no such published run.

    \b
    loopline verify smoke
    loopline verify smoke --here
    """
    from flows.published import UnknownRun, find_run, run_anew
    from flows.published import verify as verified

    with refusing(UnknownRun):
        run = find_run(published, Path.cwd())
    project = Path.cwd() if here else run_anew(Path.cwd(), run.name, run.manifest.params)
    lines, holds = verified(run, project)
    print("\n".join(lines))
    if holds and not here:
        shutil.rmtree(project)
    return 0 if holds else 1
