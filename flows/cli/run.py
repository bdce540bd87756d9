"""`loopline run`: the pipeline, once (flows/runners)."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import command, refusing
from flows.signals import stop_cleanly_on_signals


@command("run", "Run")
def run(
    until: Annotated[
        str | None,
        typer.Option(metavar="STAGE", help="Run this stage (score, or update_policy@i003) and what it needs."),
    ] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="One stage at a time, even where collection.staleness allows two.")
    ] = False,
    without_prefect: Annotated[
        bool, typer.Option("--without-prefect", help="No flow run and no server: each stage is tried once.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another run that works in this checkout.")] = False,
) -> int:
    """Bring every stage of the pipeline up to date.

    All stages run in one process, so that models, engines and worlds are loaded once. DVC decides what runs and records
    it, so that `dvc repro` and this command can take turns. Stop it whenever you like: the same command goes on.

    \b
    loopline run
    loopline run --until evaluate_policy@i003
    """
    stop_cleanly_on_signals()
    from flows.dag.dvc_seam import PipelineFailed, summary
    from flows.dag.stages import UnknownStage
    from flows.run_summary import print_run_summary
    from flows.runners.pipeline import explained, run_pipeline, run_without_prefect, targets_of

    root = Path.cwd()
    waiting = _show_holder if wait else None
    try:
        with refusing(UnknownStage):
            targets = targets_of(until, root)
        if without_prefect:
            outcomes = run_without_prefect(root, targets, waiting)
        else:
            outcomes = run_pipeline(root, targets, waiting, sequential=sequential)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except PipelineFailed as failure:
        print(f"loopline run: {explained(failure, root)}", file=sys.stderr)
        return 1
    if until is None:
        print_run_summary(root)
    print(summary(outcomes))
    return 0


def _show_holder(holder: str) -> None:
    print(f"loopline run: waits for {holder}, which works in this checkout", file=sys.stderr)
