"""`loopline registry list`: all versions, a line each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flows.cli.command import AsJson, command

if TYPE_CHECKING:
    from tasks.core.registry.model_registry import Registry


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
