"""Artifacts of iterations that params.yaml no longer asks for: they must not stay in folders that stages read whole.

DVC records such a folder (data/iterations, data/evaluations) with all that lies in it, but pushes what dvc.yaml names:
after fewer iterations than before, a clone that pulled would have other folders than dvc.lock says and run stages anew.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import move, rmtree

from flows.dag.dvc_cache import cache_folder
from tasks.core.config.dag import iteration_key
from tasks.core.config.params import Params
from tasks.core.lineage.dvc_lock import read_lock
from tasks.core.lineage.integrity import broken_artifact
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout

SET_ASIDE = Path(".loopline") / "set_aside"
_MOST_ITERATIONS = 1000


def clear_left_overs(layout: Layout, params: Params) -> list[str]:
    """Take what no stage of `params` writes out of data/iterations and data/evaluations. Return lines for people.

    An artifact that DVC's cache holds as dvc.lock has it is removed: a longer run takes it from there. Any other one is
    moved below `SET_ASIDE`.
    """
    found = list(left_overs(layout, params))
    removed = _cached(layout.root, found) if found else set()
    place = SET_ASIDE / time.strftime("%Y-%m-%d_%H-%M-%S")
    for path in found:
        if path not in removed:
            _move(path, layout.root / place / path.relative_to(layout.data))
        elif path.is_dir():
            rmtree(path)
        else:
            path.unlink()
        with suppress(OSError):  # not empty yet
            path.parent.rmdir()
    return list(_lines(len(removed), len(found) - len(removed), place))


def left_overs(layout: Layout, params: Params) -> Iterator[Path]:
    """Yield the artifacts of iterations in those two folders that are outputs of no stage of `params`."""
    written = _written(layout, params)
    for folder in sorted(layout.iteration("").glob("i[0-9][0-9][0-9]")):
        for path in sorted(_of_iteration(layout, folder.name)):
            if path.exists() and path not in written:
                yield path
    for path in sorted(layout.evaluations.glob("i[0-9][0-9][0-9]*")):
        if path in _of_evaluation(layout, path.name[:4]) and path not in written:
            yield path


def _written(layout: Layout, params: Params) -> set[Path]:
    """Return the outputs of all stages in the two folders."""
    written = {layout.policy(iteration_key(0))}
    for key in params.dag.previous:
        written |= {layout.policy(key), layout.metrics(key)}
    for key in params.dag.sampled:
        written |= _of_iteration(layout, key) - {layout.policy(key), layout.metrics(key)}
    for key in params.dag.evaluated:
        written |= _of_evaluation(layout, key)
    return written


def _of_iteration(layout: Layout, key: str) -> set[Path]:
    sampled = {layout.rollouts(key), layout.timings(key), layout.training_batch(key), layout.advantage_summary(key)}
    return sampled | {layout.policy(key), layout.metrics(key)}


def _of_evaluation(layout: Layout, key: str) -> set[Path]:
    return {layout.evaluation(key), layout.evaluation_rollouts(key)}


def _cached(root: Path, paths: list[Path]) -> set[Path]:
    """Return those of `paths` that are as dvc.lock says and lie whole in DVC's cache: each is read to be sure."""
    keys = [iteration_key(number) for number in range(_MOST_ITERATIONS)]
    try:
        recorded = read_lock(root / "dvc.lock", keys, keys, searched=keys).artifacts
    except ArtifactError:  # nothing ran to its end
        return set()
    cache, names = cache_folder(root), {path: path.relative_to(root).as_posix() for path in paths}
    return {
        path
        for path, name in names.items()
        if name in recorded and not any(broken_artifact(root, cache, name, recorded[name]))
    }


def _move(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    move(path, target)


def _lines(removed: int, moved: int, place: Path) -> Iterator[str]:
    of_no_stage = "of iterations that params.yaml no longer asks for"
    if removed:
        yield f"removed: {removed} artifacts {of_no_stage}; DVC's cache keeps them for a run that does"
    if moved:
        yield f"moved: {moved} artifacts {of_no_stage}, to {place.as_posix()}; DVC's cache does not have them"
