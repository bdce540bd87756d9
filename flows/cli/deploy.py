"""`loopline deploy`: the schedules of prefect.yaml (flows/deployments.py)."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import LAST_PORT, command
from flows.signals import stop_cleanly_on_signals


@command("deploy", "Serve")
def deploy(port: Annotated[int, typer.Option(min=1, max=LAST_PORT, help="Of the server and its page.")] = 4200) -> int:
    """Run the pipeline on a schedule, until Ctrl-C.

    Lists the schedules of prefect.yaml, then starts a Prefect server, a worker and the deployments. The hourly schedule
    is paused until you start it. One run at a time works in a checkout: nightly and weekly runs wait for their turn, an
    hourly one that finds it busy is skipped.

    \b
    loopline deploy
    """
    stop_cleanly_on_signals()
    from flows.runners.local_services import schedule_lines, serve

    root = Path.cwd()
    print("\n".join(schedule_lines(root / "prefect.yaml")), flush=True)
    serve(root, port)
    return 0
