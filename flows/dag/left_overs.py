"""Artifacts of iterations that params.yaml no longer asks for: they must not stay in folders that stages read whole.

DVC records such a folder (data/iterations, data/evaluations) with all that lies in it, but pushes what dvc.yaml names:
after fewer iterations than before, a clone that pulled would have other folders than dvc.lock says and run stages anew.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import move

from tasks.core.config.dag import iteration_key
from tasks.core.config.params import Params
from tasks.core.records.layout import Layout

SET_ASIDE = Path(".loopline") / "set_aside"


def clear_left_overs(layout: Layout, params: Params) -> Iterator[str]:
    """Move what no stage of `params` writes from data/iterations and data/evaluations to `SET_ASIDE`. Yield a line."""
    place = SET_ASIDE / time.strftime("%Y-%m-%d_%H-%M-%S")
    found = list(left_overs(layout, params))
    for path in found:
        target = layout.root / place / path.relative_to(layout.data)
        target.parent.mkdir(parents=True, exist_ok=True)
        move(path, target)
        with suppress(OSError):  # not empty yet
            path.parent.rmdir()
    if found:
        yield f"moved to {place.as_posix()}: {len(found)} artifacts of iterations that params.yaml no longer asks for"


def left_overs(layout: Layout, params: Params) -> Iterator[Path]:
    """Yield the artifacts of iterations in those two folders that are outputs of no stage of `params`."""
    written = {layout.policy(iteration_key(0))}
    for key in params.dag.previous:
        written |= {layout.policy(key), layout.metrics(key), layout.update_timings(key)}
    for key in params.dag.sampled:
        written |= _of_iteration(layout, key)
    for key in params.dag.evaluated:
        written |= {layout.evaluation(key), layout.evaluation_rollouts(key)}
    for folder in sorted(layout.iteration("").glob("i[0-9][0-9][0-9]")):
        key = folder.name
        yield from sorted(path for path in _of_iteration(layout, key) - written if path.exists())
    for path in sorted(layout.evaluations.glob("i[0-9][0-9][0-9]*")):
        key = path.name[:4]
        if path in {layout.evaluation(key), layout.evaluation_rollouts(key)} - written:
            yield path


def _of_iteration(layout: Layout, key: str) -> set[Path]:
    sampled = {layout.rollouts(key), layout.timings(key), layout.training_batch(key), layout.advantage_summary(key)}
    return sampled | {layout.policy(key), layout.metrics(key), layout.update_timings(key)}
