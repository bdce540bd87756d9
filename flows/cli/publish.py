"""`loopline publish`: a run, so that others can verify theirs."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import command, profiles, refusing


@command("publish", "Look")
def publish(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", autocompletion=profiles, help="Folder in docs/results/published; it is written anew."
        ),
    ],
    *,
    here: Annotated[bool, typer.Option("--here", help="Publish the finished run of this checkout.")] = False,
) -> int:
    """Run the profile NAME in a folder of its own, with portable bits, and publish it, so that others can verify it.

    Writes the run's dvc.lock and its manifest: machine, packages, knobs and code. Exit code 1: the run is not whole, a
    file is not what its stage wrote, or the code is not the code that ran; 2: there is no such profile.

    \b
    loopline publish smoke
    """
    from flows.profile_stack import UnknownProfile
    from flows.published import publish as published

    with refusing(UnknownProfile):
        print(published(Path.cwd(), name, here=here))
    return 0
