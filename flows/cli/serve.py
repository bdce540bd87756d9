"""`loopline serve`: a world for other trainers (flows/world_server)."""

import signal
import socket
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import LAST_PORT, Settings, command, refusing
from flows.signals import exit_on_sigterm


@command("serve", "Serve")
def serve(
    world: Annotated[str, typer.Argument(help="As world.name in params.yaml.")],
    *,
    host: Annotated[str, typer.Option(help="Whoever reaches it may have agents' code run.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=LAST_PORT, help="0: a free one.")] = 8000,
    sessions: Annotated[int, typer.Option(min=1, help="How many may be open at once.")] = 64,
    folder: Annotated[
        Path | None,
        typer.Option(resolve_path=True, help="With the tasks; made where it does not exist. By default made anew."),
    ] = None,
    settings: Settings,
) -> int:
    """Serve a world to other trainers by OpenEnv, until Ctrl-C.

    Many sessions may be open at once. The tasks are generated from world.seed, or those of the folder, a run's
    data/world say. Agents' code runs confined as in training. Exit code 1: the world cannot be prepared; 2: there is no
    such world; 3: the address is taken.

    \b
    loopline serve pocketworld
    loopline serve sokoban --port 0 --set world.seed=5
    """
    if folder is not None and folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is no folder", param_hint="--folder")
    if fault := _fault_of_host(host):
        raise typer.BadParameter(f"{host}: {fault}", param_hint="--host")
    exit_on_sigterm()
    from flows.params_file import world_section
    from flows.world_server.server import serve_prepared
    from tasks.core.config.params import ParamsError

    with refusing(ParamsError):
        config = world_section(world, settings)
    try:
        serve_prepared(config, folder, host, port, sessions)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _fault_of_host(host: str) -> str | None:
    """Return why nothing can listen at this host, whatever the port."""
    try:
        (family, kind, *_, address), *_ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError as error:
        return str(error.strerror)
    return None
