"""`loopline registry promote`: a version becomes the champion, if it may."""

import os
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import command, refusing


@command("registry promote", "Look")
def promote(
    context: typer.Context,
    version: Annotated[str, typer.Argument(help="Its number or an alias: champion, challenger.")],
) -> int:
    """Make a version the champion, if the rule of params.yaml holds.

    The rule is lineage.promotion. Exit code 1: it does not hold; 2: there is no such version.

    \b
    loopline registry promote 7
    """
    from tasks.core.registry.model_registry import UnknownVersion
    from tasks.core.registry.registration import CHAMPION
    from tasks.core.registry.run_registry import opened, promote_version

    with refusing(UnknownVersion), opened(Path.cwd(), context.obj) as (registry, params):
        found = registry.find(version)
        decision = promote_version(registry, version, params)
    if decision.promote and CHAMPION not in found.aliases and os.environ.get("PREFECT_API_URL"):
        from flows.runners.run_artifacts import tell

        tell("champion-changed", f"version {found.number} is the champion now", Path.cwd(), version=found.number)
    print("\n".join(decision.reasons))
    print(f"{'promoted' if decision.promote else 'not promoted'} (rule: lineage.promotion in params.yaml)")
    return 0 if decision.promote else 1
