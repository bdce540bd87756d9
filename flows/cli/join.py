"""`loopline join`: another machine's part in updates (flows/workers/worker_node.py)."""

from typing import Annotated

import typer

from flows.cli.command import command
from flows.errors import WrongArgument


@command("join", "Serve")
def join(
    rendezvous: Annotated[str, typer.Argument(metavar="HOST:PORT", help="update.distributed.rendezvous of the run.")],
) -> int:
    """Take part in the distributed updates of a run on another machine.

    Runs until it is stopped, on every machine except the pipeline's own. It needs the code at the same commit and the
    run's secret (~/.config/loopline/join_secret), no folder of the project.

    \b
    loopline join 10.7.0.1:29400
    """
    from flows.signals import exit_on_sigterm

    if not rendezvous.rpartition(":")[2].isdecimal():
        raise WrongArgument(f"{rendezvous}: not HOST:PORT; name update.distributed.rendezvous of the run")
    from flows.workers.worker_node import take_part

    exit_on_sigterm()
    take_part(rendezvous)
    return 0
