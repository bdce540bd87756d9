"""Commands that look at a checkout, a profile or a machine and change nothing."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli.command import Settings, profiles, refusing
from flows.signals import stop_cleanly_on_signals

Hardware = Literal["a100", "cpu", "h100", "h200"]


def status() -> int:
    """List the stages that would run now, and why.

    The reason is a knob, a file of code or an artifact. A stage that follows another may run: it does not if its
    inputs come out the same. `dvc status` cannot know all of this before the stage version_stages has run.

    \b
    loopline status
    """
    stop_cleanly_on_signals()
    from flows.dag.due_stages import due_stages
    from flows.status import page

    print("\n".join(page(due_stages(Path.cwd()))))
    return 0


def plan(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROFILE", autocompletion=profiles, help="The later on top; without one, params.yaml."),
    ] = None,
    *,
    hardware: Annotated[
        Hardware | None,
        typer.Option(help="By default cpu or h100, by policy.device; where that is auto, by policy.dtype."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Devices; by default update.distributed says.")] = None,
    settings: Settings,
    pilot: Annotated[Path | None, typer.Option(help="A table of rollouts: propose rollouts per task from it.")] = None,
    wanted_share: Annotated[float, typer.Option(help="Share of groups that shall carry a signal.")] = 0.8,
) -> int:
    """Estimate the memory, time and disk that a profile needs.

    It is a model of formulas and stated assumptions, which was checked on a CPU, and on a GPU for the learner alone.
    Exit code 1: it does not fit; 2: it cannot be planned.

    \b
    loopline plan paper rloo --hardware h100 --gpus 16
    loopline plan --pilot data/iterations/i001/rollouts.parquet
    """
    if not 0 < wanted_share < 1:
        raise typer.BadParameter(f"{wanted_share} is not between 0 and 1", param_hint="--wanted-share")
    from flows.plan import Question, planned

    with refusing(ValueError):
        lines, warnings = planned(Question(names or [], settings, hardware, gpus, pilot, wanted_share), Path.cwd())
    print("\n".join([*lines, *(f"does not fit: {warning}" for warning in warnings)]))
    return 1 if warnings else 0


def report(
    opened: Annotated[bool, typer.Option("--open/--no-open", help="Or print its path alone.")] = True,
) -> int:
    """Open the report of the last run in a browser.

    It is a page that needs no server and no network. Exit code 1: no run has ended yet.

    \b
    loopline report
    loopline report --no-open
    """
    import webbrowser

    from tasks.core.records.files import ArtifactError
    from tasks.core.records.layout import Layout

    page = Layout(Path.cwd()).report / "index.html"
    if not page.exists():
        raise ArtifactError(f"{page}: missing; `loopline run` or `dvc repro` writes it")
    print(page)
    if opened:
        webbrowser.open(page.as_uri())
    return 0


def doctor() -> int:
    """Check what this machine has and lacks for a run.

    Lists versions, cores, memory, disk, GPUs, ports and the interpreters of worlds, and what of params.yaml would not
    work here. Exit code 1: something that a run needs is missing.

    \b
    loopline doctor
    """
    from rich.console import Console
    from rich.table import Table

    from flows.doctor import findings

    listed = [*findings(Path.cwd())]
    table = Table(box=None, show_header=False, pad_edge=False)
    for found in listed:
        table.add_row(found.state, found.subject, found.text)
    Console(highlight=False, markup=False).print(table)
    return 1 if any(found.state == "lacks" for found in listed) else 0
