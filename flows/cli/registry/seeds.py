"""`loopline registry seeds`: the spread of the versions' scores."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flows.cli.command import command

if TYPE_CHECKING:
    from tasks.core.registry.model_registry import Registry
    from tasks.core.registry.version_evaluation import VersionEvaluation


@command("registry seeds", "Look")
def seeds(context: typer.Context) -> int:
    """Print the spread of the scores over training seeds.

    \b
    loopline registry seeds
    """
    from tasks.core.registry.run_registry import opened
    from tasks.core.registry.seed_spread import seed_spreads, spread_lines

    with opened(Path.cwd(), context.obj) as (registry, _):
        print("\n".join(spread_lines(seed_spreads(readable(registry)))))
    return 0


def readable(registry: Registry) -> Iterator[tuple[int, VersionEvaluation]]:
    """Yield the versions whose evaluations this code can read, and print the others on stderr."""
    from tasks.core.records.files import ArtifactError

    for version in registry.versions:
        try:
            yield version.number, registry.evaluation(version)
        except ArtifactError as error:
            print(f"left out: {error}", file=sys.stderr)
