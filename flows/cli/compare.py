"""`loopline compare`: methods over training seeds (flows/comparison)."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import Settings, command, refusing, words


def _placed(study: str | None) -> str | None:
    """Return the whole path of a study's file: commands work in the checkout, not where they were called."""
    return str(Path(study).resolve()) if study and study.endswith((".yaml", ".yml")) else study


@command("compare", "Run")
def compare(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY",
            callback=_placed,
            help="A study's YAML file, or its name if it is in flows/comparison/studies.",
        ),
    ] = None,
    *,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B", help="Of the study; without a study, profiles (loop: the base alone).")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="0,1", help="Training seeds.")] = None,
    base: Annotated[str | None, typer.Option(metavar="A,B", help="Profiles under all methods.")] = None,
    settings: Settings,
    against: Annotated[
        str | None, typer.Option(help="The method that the others are compared with (nft: the base).")
    ] = None,
    controls: Annotated[
        bool,
        typer.Option("--controls", help="Also what a gain must beat: imitation, training on demonstrations, chance."),
    ] = False,
    name: Annotated[str | None, typer.Option(help="Name of the study, of its folder and of its experiments.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; by default one per core.")] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete its working trees; tables and experiments stay.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Only write the tables of the runs that have ended.")
    ] = False,
) -> int:
    """Compare methods over training seeds, in one table.

    Each method with each seed is a DVC experiment; the table is in data/comparisons. Stopped or killed, the same
    command goes on. Exit code 1: a run failed; 2: there is no such profile.

    \b
    loopline compare --methods loop,grpo,rloo --seeds 0,1,2
    loopline compare --methods loop --controls --seeds 0,1,2
    """
    changes = {"seeds": words("--seeds", seeds), "base": words("--base", base), "against": against, "name": name}
    if unfit := [seed for seed in words("--seeds", seeds) or () if not seed.isdigit()]:
        raise typer.BadParameter(f"{', '.join(unfit)}: no whole number from 0 on", param_hint="--seeds")
    chosen = words("--methods", methods)
    from flows.comparison.study_folder import StudyFolder, asked_plan
    from flows.profile_stack import UnknownProfile
    from tasks.core.study import markdown

    with refusing(UnknownProfile):
        asked = StudyFolder(Path.cwd(), asked_plan(study, chosen, settings, changes, controls))
        if remove:
            asked.remove()
            return 0
        failures = [] if report else asked.bring_to_end(jobs)
        found = asked.read()
    for failure in failures if found else [*failures, "no run has ended yet"]:
        print(f"loopline compare: {failure}", file=sys.stderr)
    if found is None:
        return 1
    print(markdown(found) + f"\n{asked.write(found)}/index.html has the learning curves.")
    return 1 if failures else 0
