"""Asynchronous collection in the warm flow: a second process collects rollouts while this one updates the policy.

With `collection.staleness` above 0 the rollouts of the next iteration do not depend on the update in hand. They are
collected into a folder next to the project's data, and take their place there only when DVC has come to their stage,
which records them: a run that ends before that leaves nothing behind but what it recorded. One process collects
everything (evaluations too), so that there is one engine, as without it.
"""

import logging
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flows.dag.stages import stage_label
from flows.errors import is_expected, picklable_error
from flows.runners.plain_runner import PlainRunner
from flows.signals import stop_cleanly_on_signals
from tasks.core.config.dag import iteration_key
from tasks.core.config.params import Params
from tasks.core.interfaces.engine_kind import find_engine
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.processes.resources import spare_old_objects
from tasks.core.records.files import Fingerprint, fingerprint, replacing
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.core.rollouts.iteration import rollouts_seen

IsDue = Callable[[str], bool]
"""Whether DVC would run a stage (by its name in DVC) as things stand."""
_Inputs = tuple[bytes, tuple[Fingerprint, ...]]
_log = logging.getLogger(__name__)


def can_overlap(params: Params) -> bool:
    """Return whether rollouts need not wait for the update before them, and may use the engine while it runs."""
    if params.collection.staleness == 0:
        return False
    why = find_engine(params.engine.name).waits_for_update(params.engine.own)
    if why is not None:
        staleness = params.collection.staleness
        _log.warning("rollouts wait for updates, in spite of collection.staleness %d: %s", staleness, why)
    return why is None


@dataclass(frozen=True)
class _Prefetched:
    """Rollouts that are being collected ahead of their stage."""

    key: str
    inputs: _Inputs
    done: "Future[None]"


class AsyncCollector:
    """The second process of one flow run. Start it in the main thread: Linux ends it with the thread that did."""

    def __init__(self, root: Path, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        """Make a collector; `environment` holds variables of its process, such as the Prefect server's address."""
        self._root, self._side = root, root / ".loopline" / "prefetched"
        self._prefetched: _Prefetched | None = None
        shutil.rmtree(self._side, ignore_errors=True)
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_prepare, initargs=(dict(environment),))
        self._pid: Future[int] = self._pool.submit(os.getpid)
        self._last: Future[Any] = self._pid

    def claim_or_run(self, name: str, key: str) -> None:
        """Claim what was prefetched for this stage, or else `run` it."""
        if name != "collect_rollouts" or not self.claim(key):
            self.run(name, key)

    def run(self, name: str, key: str) -> None:
        """Run a stage's body there. Raises StageFailed, or what the body raised where the program is at fault."""
        self._begin(name, key, self._root).result()

    def prefetch(self, updated: str, is_due: IsDue) -> None:
        """While iteration `updated` updates the policy, collect rollouts for the next one, if DVC is going to ask."""
        params = recorded_params(Layout(self._root))
        key = iteration_key(int(updated[1:]) + 1)
        if key not in params.dag.collected or params.dag.collected[key] >= updated or not is_due(_label(key)):
            return
        _link_inputs(Layout(self._root), Layout(self._side), params, key)
        inputs = _fingerprint(Layout(self._root), params, key)
        self._prefetched = _Prefetched(key, inputs, self._begin("collect_rollouts", key, self._side))

    def _begin(self, name: str, key: str, root: Path) -> "Future[None]":
        self._last = begun = self._pool.submit(_body, name, key, str(root))
        return begun

    def claim(self, key: str) -> bool:
        """Put the rollouts prefetched for `key` in their place; False when there are none that hold."""
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is None:
            return False
        try:
            prefetched.done.result()
        except Exception as error:
            _log.warning("%s, ahead of its turn: %s; collecting again", _label(prefetched.key), error)
            return False
        here, side = Layout(self._root), Layout(self._side)
        params = recorded_params(here)
        if prefetched.key != key or prefetched.inputs != _fingerprint(here, params, key):
            _log.warning(
                "%s: its inputs changed after it was collected ahead of its turn; collecting again", _label(key)
            )
            return False
        here.iteration(key).mkdir(parents=True, exist_ok=True)
        for made, place in zip(_outputs(side, key), _outputs(here, key), strict=True):
            with replacing(place) as temporary:
                shutil.move(made, temporary)  # data/ may be a file system of its own
        return True

    def close(self) -> None:
        """End the process; what it is at is dropped."""
        try:
            if not self._last.done():
                os.kill(self._pid.result(), signal.SIGTERM)
            else:
                self._pool.submit(_close).result()
        except (BrokenProcessPool, ProcessLookupError):
            pass
        self._pool.shutdown(cancel_futures=True)
        shutil.rmtree(self._side, ignore_errors=True)


def _label(key: str) -> str:
    return stage_label("collect_rollouts", key)


def _inputs(layout: Layout, params: Params, key: str) -> list[Path]:
    """Return the folders that collect_rollouts@`key` reads, as in dvc.yaml."""
    return [layout.world, layout.base_policy, layout.tasks.parent, layout.policy(params.dag.collected[key])]


def _outputs(layout: Layout, key: str) -> tuple[Path, ...]:
    """Return the files that collect_rollouts@`key` writes, as in dvc.yaml."""
    return layout.rollouts(key), layout.timings(key), layout.attestation("collect_rollouts", key)


def _link_inputs(here: Layout, side: Layout, params: Params, key: str) -> None:
    """Make `side` a project's folder that holds the inputs of `key` (as links) and room for its outputs."""
    side.iteration(key).mkdir(parents=True, exist_ok=True)
    shutil.copy(here.root / "dvc.yaml", side.root)
    for source, copy in ((here.manifest, side.manifest), (here.stage_versions, side.stage_versions)):
        shutil.copy(source, copy)
    links = [*zip(_inputs(here, params, key), _inputs(side, params, key), strict=True)]
    if params.collection.task_drawing == "coverage":
        seen = rollouts_seen(params.dag.previous, params.dag.collected[key])
        links += [(here.rollouts(earlier), side.rollouts(earlier)) for earlier in seen]
    for source, link in links:
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(source.resolve())


def _fingerprint(layout: Layout, params: Params, key: str) -> _Inputs:
    """Return the record of parameters and code, and all that the stage reads."""
    folders = tuple(fingerprint(folder) for folder in _inputs(layout, params, key))
    return layout.manifest.read_bytes(), folders


def _prepare(environment: dict[str, str]) -> None:
    stop_cleanly_on_signals()
    spare_old_objects()
    os.environ.update(environment)


@cache
def _process_cache() -> ProcessCache:
    """Models, engine and worlds that the second process keeps between stages."""
    return ProcessCache()


def _body(name: str, key: str, root: str) -> None:
    """Run a stage's body in the folder `root`: this is the second process."""
    try:
        PlainRunner(Path(root), _process_cache()).play(name, key)
    except SystemExit:  # SIGTERM; the pool would take it for the body's failure and wait for the next
        _process_cache().close()
        os._exit(128 + signal.SIGTERM)
    except Exception as error:
        if is_expected(error):
            raise picklable_error(error) from None
        raise


def _close() -> None:
    _process_cache().close()
