"""`loopline registry compare`: versions beside each other, by their scores."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import command, refusing


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
    from tasks.core.scored_models.comparison_page import comparison_page

    with refusing(UnknownVersion), opened(Path.cwd(), context.obj) as (registry, _):
        comparison, folder = compare_versions(registry, versions, Path.cwd())
    print(f"{comparison_page(comparison)}\n\nwritten to {folder.relative_to(Path.cwd())}/")
    return 0
