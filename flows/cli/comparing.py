"""Commands that compare methods and model versions, and ask where a number came from."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import Settings, refusing, words

Version = Annotated[str, typer.Argument(help="Its number or an alias: champion, challenger.")]


def compare(
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="A YAML file, or the name of one in flows/comparison/studies.")
    ] = None,
    *,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B", help="Of the study; without a study, profiles (loop: the base alone).")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="0,1", help="Training seeds.")] = None,
    base: Annotated[str | None, typer.Option(metavar="A,B", help="Profiles under all methods.")] = None,
    settings: Settings,
    against: Annotated[str | None, typer.Option(help="The method that the others are compared with.")] = None,
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
    loopline compare methods --jobs 2
    """
    changes = {"seeds": words("--seeds", seeds), "base": words("--base", base), "against": against, "name": name}
    chosen = words("--methods", methods)
    from flows.comparison.study import StudyFolder, asked_plan
    from flows.profile_stack import UnknownProfile
    from tasks.core.study.page import markdown

    with refusing(UnknownProfile):
        asked = StudyFolder(Path.cwd(), asked_plan(study, chosen, settings, changes))
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


def lineage(
    subject: Annotated[str, typer.Argument(help="i012, selected, test_normal.tgc, i003:TASK:2 or a path below data/.")],
) -> int:
    """Print where a number or an artifact came from, and check it.

    The answer goes down to task ids and seeds, with parameters, commit and base model as they were recorded, and holds
    each digest against dvc.lock and DVC's cache. Exit code 1: a link is broken; 2: there is no such subject.

    \b
    loopline lineage selected
    loopline lineage test_normal.tgc
    loopline lineage data/report
    """
    from flows.lineage import traced
    from tasks.core.lineage.subject import UnknownSubject

    with refusing(UnknownSubject):
        lines, broken = traced(subject, Path.cwd())
    print("\n".join([*lines, *(f"BROKEN: {line}" for line in broken)] if broken else [*lines, "every link holds"]))
    return 1 if broken else 0


def of_model(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="Another registered model than the one of params.yaml.")] = None,
) -> None:
    """List, compare and promote versions of the policy."""
    context.obj = model


def list_versions(context: typer.Context) -> int:
    """List all versions, their aliases and parents.

    \b
    loopline registry list
    """
    from flows.registry import opened, version_lines

    with opened(Path.cwd(), context.obj) as (registry, _):
        print("\n".join(version_lines(registry)))
    return 0


def seeds(context: typer.Context) -> int:
    """Print the spread of the scores over training seeds.

    \b
    loopline registry seeds
    """
    from flows.registry import opened, readable
    from tasks.core.registry.seed_spread import seed_spreads, spread_lines

    with opened(Path.cwd(), context.obj) as (registry, _):
        print("\n".join(spread_lines(seed_spreads(readable(registry)))))
    return 0


def compare_versions(
    context: typer.Context,
    versions: Annotated[list[str], typer.Argument(metavar="VERSION", help="Numbers or aliases.")],
    rescore: Annotated[
        bool, typer.Option("--rescore", help="Play all splits anew in this working tree's world.")
    ] = False,
) -> int:
    """Compare versions: scores, behaviour and parameters.

    The page is printed and written into data/comparisons. Exit code 2: there is no such version.

    \b
    loopline registry compare 3 7 champion
    loopline registry compare champion --rescore
    """
    from contextlib import nullcontext

    from flows.dag.checkout_lock import checkout_lock
    from flows.registry import compare_versions, opened
    from tasks.core.registry.comparison_page import comparison_page
    from tasks.core.registry.model_registry import UnknownVersion

    root = Path.cwd()
    lock = checkout_lock(root, "loopline registry compare") if rescore else nullcontext()
    with refusing(UnknownVersion), opened(root, context.obj) as (registry, params), lock:
        comparison, folder = compare_versions(registry, versions, root, params, rescore)
    print(f"{comparison_page(comparison)}\nwritten to {folder.relative_to(root)}/")
    return 0


def promote(context: typer.Context, version: Version) -> int:
    """Make a version the champion, if the rule of params.yaml holds.

    The rule is lineage.promotion. Exit code 1: it does not hold; 2: there is no such version.

    \b
    loopline registry promote 7
    """
    from flows.registry import opened, promote_version
    from tasks.core.registry.model_registry import UnknownVersion

    with refusing(UnknownVersion), opened(Path.cwd(), context.obj) as (registry, params):
        decision = promote_version(registry, version, params)
    print("\n".join(decision.reasons))
    print(f"{'promoted' if decision.promote else 'not promoted'} (rule: lineage.promotion in params.yaml)")
    return 0 if decision.promote else 1
