"""The commands `loopline registry`: versions of the trained policy listed, compared, promoted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.command import AsJson, command, group, refusing

if TYPE_CHECKING:
    from tasks.core.registry.model_registry import Registry


@group("registry", "Look")
def of_model(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="Another registered model than the one of params.yaml.")] = None,
) -> None:
    """List, compare and promote versions of the policy."""
    context.obj = model


@command("registry list", "Look")
def list_versions(context: typer.Context, as_json: AsJson = False) -> int:
    """List all versions, their aliases and parents.

    \b
    loopline registry list
    """
    from tasks.core.registry.run_registry import opened

    with opened(Path.cwd(), context.obj) as (registry, _):
        found = [vars(version) for version in registry.versions] if as_json else []
        print(
            json.dumps({"model": registry.name, "versions": found}) if as_json else "\n".join(version_lines(registry))
        )
    return 0


def version_lines(registry: Registry) -> Iterator[str]:
    """Yield the number of versions, then a line for each with its aliases and its parent."""
    count = len(registry.versions)
    yield f"{registry.name}: {count} {'version' if count == 1 else 'versions'}"
    for version in registry.versions:
        made = datetime.fromtimestamp(version.created_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        tags = version.tags
        parent = f"parent {tags.get('parent_version', '?')}"
        aliases = f"  {', '.join(version.aliases)}" if version.aliases else ""
        yield f"{version.number:4}  {made}  {tags.get('iteration', '?')}  {parent}{aliases}"


@command("registry compare", "Look")
def compare_versions(
    context: typer.Context,
    versions: Annotated[list[str], typer.Argument(metavar="VERSION", help="Numbers or aliases.")],
) -> int:
    """Compare versions by the scores that they hold.

    The page is printed and written into data/comparisons. Versions that differ in their seed alone get their spread
    over seeds. MLflow's own page of two runs compares parameters and behaviour, and
    `loopline score models:/NAME/3 models:/NAME/7` plays versions anew. Exit code 2: there is no such version.

    \b
    loopline registry compare 3 7 champion
    """
    from tasks.core.registry.model_registry import UnknownVersion
    from tasks.core.registry.run_registry import compare_versions, opened
    from tasks.core.scored_models.comparing import comparison_page

    with refusing(UnknownVersion), opened(Path.cwd(), context.obj) as (registry, _):
        comparison, folder = compare_versions(registry, versions, Path.cwd())
    print(f"{comparison_page(comparison)}\n\nwritten to {folder.relative_to(Path.cwd())}/")
    return 0


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
    from tasks.core.registry.model_registry import CHAMPION, UnknownVersion
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
