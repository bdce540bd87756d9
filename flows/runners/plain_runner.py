"""Stages run in this process, each once, as DVC asks for them."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.dag.dvc_seam import Outcome, StageRunner
from flows.dag.recorded import as_recorded, unedited, write_attestation
from flows.dag.stages import Stage, check_key, find_stage
from flows.run_progress import stage_line
from flows.workers.executors import executor_of, ranks_of
from tasks.core.collapse.rules import read_new_warnings, require_no_warning
from tasks.core.config.params import Params, load_params
from tasks.core.interfaces.stage import Executor, ProcessCache, StageContext
from tasks.core.processes.resources import return_freed_memory
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params

_TRAINING = ("collect_rollouts", "search_trees", "update_policy")
_log = logging.getLogger(__name__)


class PlainRunner(StageRunner):
    """Runs the stages of the project at `root`; what they load is kept in `cache`, which the caller closes."""

    def __init__(self, root: Path, cache: ProcessCache) -> None:
        self.layout, self.cache = Layout(root), cache

    def run(self, name: str, key: str) -> None:
        """Run a stage with the parameters and the code that are recorded; version_stages records those at hand.

        Raises ParamsError, ArtifactError, NotAsRecorded, UnknownStage (no stage, or a key that the stage is not run
        for), TrainingStopped, and whatever the stage raises.
        """
        self._require_going_on(name, key)
        self.play(name, key)

    def play(self, name: str, key: str) -> None:
        """Run a stage as `run` does, whatever the iterations before came to, which may lie elsewhere."""
        stage = find_stage(name)
        with self._prepared(stage, key) as context:
            stage.load()(context)

    def attempt(self, stage: str, key: str, attempt: Callable[[], Outcome]) -> None:
        """Make the attempt."""
        attempt()

    def _require_going_on(self, name: str, key: str) -> None:
        """Raise TrainingStopped where `monitor.action` is stop and an iteration before showed a sign of a collapse.

        Outside of the stages, so that the action can be changed in the middle of a run and makes none stale.
        """
        if name not in _TRAINING:
            return
        params = recorded_params(self.layout)
        check_key(find_stage(name), key, params)
        before = params.dag.previous[key].policy if name == "update_policy" else params.dag.sampled[key]
        if params.monitor.action == "stop":
            require_no_warning(self.layout, before)

    def executor(self, stage: Stage, params: Params) -> Executor:
        """Return what plays the rollouts of `stage`."""
        return executor_of(stage, params)

    @contextmanager
    def _prepared(self, stage: Stage, key: str) -> Iterator[StageContext[Any]]:
        """Yield the context of a stage, whose parameters and code are held against the record around the block.

        A context manager, so that a traceback of the stage has no line of it.
        """
        if stage.name == "version_stages":
            with unedited(self.layout.params):
                params = load_params(self.layout.params)
                check_key(stage, key, params)
                yield StageContext(self.layout, params, key, self.cache)
            return
        params = recorded_params(self.layout)
        check_key(stage, key, params)
        stage.load()  # before the check, which asks what this process has imported
        with as_recorded(stage, params, self.layout, self.cache) as version:
            try:
                inputs, executor = stage.inputs_of(params), self.executor(stage, params)
                ranks = ranks_of(stage, key, params, self.cache)
                yield StageContext(self.layout, inputs, key, self.cache, executor, ranks, version.digest)
            finally:
                return_freed_memory()  # an update leaves gigabytes of holes, and the next stage has the same process
        write_attestation(stage, key, version, self.layout)
        if line := stage_line(self.layout, stage.name, key):
            print(line, flush=True)
        if stage.name == "update_policy":  # outside of the stage, so that a new limit makes no update stale
            for found in read_new_warnings(self.layout, key):
                _log.warning("%s: sign of a collapse: %s: %s", key, found.rule, found.evidence)
