"""Commands that write params.yaml, run the pipeline, and show how far it is."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import Settings, profiles, refusing
from flows.signals import stop_cleanly_on_signals

_REFRESH_S = 2.0
_PATIENCE_S = 20.0
"""How long nothing may be at work before the run counts as ended."""


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

    A profile says what is trained where; a method goes on top of one. Exit code 2: there is no such profile.

    \b
    loopline configure default
    loopline configure appworld grpo --set iterations=20
    loopline configure --refresh --set update.epochs=2
    """
    from flows.configure import assigned, write_params
    from flows.profile_stack import UnknownProfile, read_mapping, stacked

    path = Path.cwd() / "params.yaml"
    if bool(names) == refresh:
        raise typer.BadParameter("give a profile's name, or --refresh")
    with refusing(UnknownProfile):
        content = stacked(names) if names else read_mapping(path)
        changes = write_params(path, assigned(content, settings))
    print("\n".join(changes) or "params.yaml is as it was")
    return 0


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
    from flows.pipeline import explained, run_pipeline, run_without_prefect, targets_of
    from flows.run_summary import print_run_summary

    root = Path.cwd()
    waiting = _show_holder if wait else None
    try:
        with refusing(UnknownStage):
            targets = targets_of(until, root)
        if without_prefect:
            outcomes = run_without_prefect(root, targets, waiting)
        else:
            outcomes = run_pipeline(root, targets, waiting, sequential=sequential)
    except PipelineFailed as failure:
        print(f"loopline run: {explained(failure, root)}", file=sys.stderr)
        return 1
    if until is None:
        print_run_summary(root)
    print(summary(outcomes))
    return 0


def _show_holder(holder: str) -> None:
    print(f"loopline run: waits for {holder}, which works in this checkout", file=sys.stderr)


def watch() -> int:
    """Show how far the run in this checkout is, until it ends.

    Shows the iteration, the time that is left, and the scores on dev so far. It reads files only, so that it works
    from another terminal, whatever command runs the pipeline. Where stdout is no terminal it prints once.

    \b
    loopline watch
    """
    from rich.console import Console
    from rich.live import Live

    from flows.progress import page, read_progress

    root, console = Path.cwd(), Console(highlight=False)
    progress = read_progress(root)
    if not console.is_terminal or progress.at_work is None:
        print(page(progress))
        return 0
    with Live(page(progress), console=console, auto_refresh=False) as live:
        idle_s = 0.0
        while idle_s < _PATIENCE_S:  # between two stages of `dvc repro` nothing holds the checkout
            time.sleep(_REFRESH_S)
            progress = read_progress(root)
            idle_s = 0.0 if progress.at_work else idle_s + _REFRESH_S
            live.update(page(progress), refresh=True)
    return 0
