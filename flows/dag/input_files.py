"""The files that stages read and no stage wrote are there before a stage asks for them."""

from pathlib import Path

from tasks.core.config.dag import NO_WORLD_FILES
from tasks.core.config.params import Params, ParamsError

_ELSEWHERE = "where it was pulled with its results, `dvc repro --allow-missing` goes on"


def require_named_files(params: Params, root: Path) -> None:
    """Raise ParamsError where `policy.source` or the data of the world is not there, in the place of DVC's errno."""
    sources = params.dag.sources
    if not (root / sources.policy).exists():
        raise ParamsError(
            f"policy.source: {params.policy.source} is no folder here, nor `recipe`, `pip:PACKAGE==VERSION` or a hub "
            f"id with its policy.revision; {_ELSEWHERE}"
        )
    if sources.package != NO_WORLD_FILES and not (root / sources.package).exists():
        raise ParamsError(
            f"world.name: {params.world.name} is not installed at {sources.package} here; run `loopline configure "
            "--refresh`"
        )
    if sources.world != NO_WORLD_FILES and not (root / sources.world).exists():
        raise ParamsError(f"{_knob_of(params, Path(sources.world))}: there is no {sources.world}; {_ELSEWHERE}")


def _knob_of(params: Params, file: Path) -> str:
    """Return the knob of the world that names `file`, or a folder that it lies in."""
    world = f"world.{params.world.name}"
    named = [name for name, value in params.world.settings if value in (file, *file.parents)]
    return f"{world}.{named[0]}" if named else world


def require_own_files(params: Params, root: Path) -> None:
    """Raise ParamsError as `require_named_files`, but not for files of the project itself, which git has."""
    if not params.dag.sources.policy.startswith("data/"):
        require_named_files(params, root)
