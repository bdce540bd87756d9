"""`loopline registry`: versions of the trained policy in MLflow's model registry."""

from typing import Annotated

import typer

from flows.cli.command import group


@group("registry", "Look")
def of_model(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="Another registered model than the one of params.yaml.")] = None,
) -> None:
    """List, compare and promote versions of the policy."""
    context.obj = model
