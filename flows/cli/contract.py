"""`loopline contract`: a world held against tasks/core/interfaces/world_contract.py."""

from typing import Annotated

import typer

from flows.cli.command import Settings, command, refusing


@command("contract", "Look")
def contract(world: Annotated[str, typer.Argument(help="As world.name in params.yaml.")], *, settings: Settings) -> int:
    """Check a world against the contract of all worlds.

    Prepares its tasks, plays some of them, and prints each rule with what breaks it, and what doing nothing earns: for
    the author of a world. Exit code 1: a rule is broken; 2: there is no such world.

    \b
    loopline contract sokoban
    loopline contract sokoban --set world.sokoban.max_turns=7
    """
    from flows.params_file import world_section
    from tasks.core.config.params import ParamsError
    from tasks.core.interfaces.world_contract import findings_of

    with refusing(ParamsError):
        section = world_section(world, settings)
    broken = 0
    for state, line in findings_of(section):
        broken += state == "broken"
        print(f"{state:7} {line}", flush=True)
    return 1 if broken else 0
