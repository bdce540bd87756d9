"""Commands that serve until they are stopped, and exports for other packages."""

import signal
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli.command import Settings, refusing
from flows.signals import exit_on_sigterm, stop_cleanly_on_signals

_LAST_PORT = 65_535
Split = Annotated[
    Literal["test_normal", "test_challenge"],
    typer.Argument(metavar="SPLIT", help="The split whose scores are written."),
]
NewFolder = Annotated[Path, typer.Argument(help="A folder that does not exist yet.")]
ExportFolder = Annotated[Path, typer.Argument(help="A new folder, or one with an export of the other split.")]
Policy = Annotated[Literal["selected", "base"], typer.Option(help="Whose rollouts.")]
EvaluationRun = Annotated[int, typer.Option("--run", min=0, help="Which of the evaluation runs.")]


def deploy(
    port: Annotated[int, typer.Option(min=1, max=_LAST_PORT, help="Of the server and its page.")] = 4200,
) -> int:
    """Run the pipeline on a schedule, until Ctrl-C.

    Starts a Prefect server, a worker and the deployments of prefect.yaml. One run at a time works in a checkout:
    nightly and weekly runs wait for their turn, an hourly one that finds it busy is skipped.

    \b
    loopline deploy
    """
    stop_cleanly_on_signals()
    from flows.orchestration.local_services import serve

    serve(Path.cwd(), port)
    return 0


def serve(
    world: Annotated[str, typer.Argument(help="As world.name in params.yaml.")],
    *,
    host: Annotated[str, typer.Option(help="Whoever reaches it may have agents' code run.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=_LAST_PORT, help="0: a free one.")] = 8000,
    sessions: Annotated[int, typer.Option(min=1, help="How many may be open at once.")] = 64,
    folder: Annotated[
        Path | None,
        typer.Option(help="With the tasks; made where it does not exist. By default made anew."),
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
    exit_on_sigterm()
    from flows.world_server.server import serve_prepared, world_settings
    from tasks.core.config.params import ParamsError

    with refusing(ParamsError):
        config = world_settings(world, settings)
    try:
        serve_prepared(config, folder, host, port, sessions)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def join(
    project: Annotated[Path, typer.Argument(help="The project's folder, which all machines share.")] = Path(),
) -> int:
    """Take part in a project's distributed updates.

    Runs until it is stopped, on every machine except the pipeline's own.

    \b
    loopline join /mnt/project
    """
    from flows.workers.worker_node import take_part

    take_part(project.resolve())
    return 0


def appworld(split: Split, folder: ExportFolder, policy: Policy = "selected", run: EvaluationRun = 0) -> int:
    """Write scores as AppWorld's experiment outputs.

    Prints our TGC and SGC next to the package's own. The folder becomes an AppWorld root on which `appworld evaluate`
    and `pack` work. Exit code 1: an input is missing, or the package judges a task otherwise than we did.

    \b
    loopline export appworld test_normal exported
    """
    from flows.appworld_export import exported
    from tasks.core.records.layout import Layout

    lines, agrees = exported(Layout(Path.cwd()), split, policy, run, folder)
    print("\n".join(lines))
    return 0 if agrees else 1


def bfcl(split: Split, folder: NewFolder, policy: Policy = "selected", run: EvaluationRun = 0) -> int:
    """Write scores as BFCL's result files.

    The package judges the rollouts itself, and its verdicts are printed next to ours. Exit code 1: an input is missing,
    or the package judges a task otherwise than we did.

    \b
    loopline export bfcl test_normal exported
    """
    from flows.bfcl_export import comparison, differing, examined_rows
    from tasks.core.records.layout import Layout
    from tasks.core.worlds.bfcl.export import require_new, write_results

    require_new(folder)
    rows, verdicts = examined_rows(Layout(Path.cwd()), split, policy, run)
    print("\n".join(comparison(rows, verdicts)))
    write_results(folder, f"loopline_{split}", verdicts)
    return 1 if differing(rows, verdicts) else 0
