"""The files that stages read and no stage wrote are there before a stage asks for them."""

from pathlib import Path

from tasks.core.config.params import Params, ParamsError


def require_sources(params: Params, root: Path) -> None:
    """Raise ParamsError where `policy.source` or the data of the world is not there, in the place of DVC's errno."""
    sources = params.sources
    if not (root / sources.policy).exists():
        raise ParamsError(
            f"policy.source: {params.policy.source} is no folder here, nor `recipe`, `pip:PACKAGE==VERSION` or a hub "
            "id with its policy.revision; where it was pulled with its results, `dvc repro --allow-missing` goes on"
        )
    if not (root / sources.world).exists():
        raise ParamsError(
            f"world.{params.world.name}.root: there is no {sources.world}; where it was pulled with its results, "
            "`dvc repro --allow-missing` goes on"
        )
