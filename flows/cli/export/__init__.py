"""`loopline export`: what a run made, in the forms of other tools."""

from flows.cli.command import group


@group("export", "Serve")
def export() -> None:
    """Write a trained model, recorded rollouts or scores in the forms of other tools."""
