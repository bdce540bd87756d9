"""`loopline registry compare`: versions beside each other, by their scores."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import command, refusing


@command("registry compare", "Look")
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
    from flows.dag.checkout_lock import checkout_lock
    from tasks.core.registry.comparison_page import comparison_page
    from tasks.core.registry.model_registry import UnknownVersion
    from tasks.core.registry.run_registry import compare_versions, opened

    root = Path.cwd()
    lock = checkout_lock(root, "loopline registry compare") if rescore else nullcontext()
    with refusing(UnknownVersion), opened(root, context.obj) as (registry, params), lock:
        comparison, folder = compare_versions(registry, versions, root, params, rescore)
    print(f"{comparison_page(comparison)}\nwritten to {folder.relative_to(root)}/")
    return 0
