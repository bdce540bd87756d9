"""`loopline configure`: write params.yaml."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import Settings, command, profiles, refusing


@command("configure", "Run")
def configure(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROFILE", autocompletion=profiles, help="Profiles, the later on top of the earlier."),
    ] = None,
    *,
    refresh: Annotated[bool, typer.Option("--refresh", help="Start from the present params.yaml instead.")] = False,
    settings: Settings,
) -> int:
    """Write params.yaml from profiles, or change knobs in it.

    A profile says what is trained where; a method goes on top of one. Exit code 2: there is no such profile or knob,
    or a value that it does not take.

    \b
    loopline configure default
    loopline configure appworld grpo --set iterations=20
    loopline configure --refresh --set update.epochs=2
    """
    from flows.params_file import assigned, write_params
    from flows.profile_stack import UnknownProfile, read_mapping, stacked
    from tasks.core.config.params import ParamsError

    path = Path.cwd() / "params.yaml"
    if bool(names) == refresh:
        raise typer.BadParameter("give a profile's name, or --refresh")
    present = None if names else read_mapping(path)
    with refusing(UnknownProfile, *([ParamsError] if names or settings else [])):
        content = stacked(names or []) if present is None else present
        changes = write_params(path, assigned(content, settings))
    print("\n".join(changes) or "params.yaml is as it was")
    return 0
