"""Running one stage's body in this process: what both runners share. Knows neither DVC nor Prefect."""

import logging
from collections.abc import Callable
from pathlib import Path

from flows.dag.attestations import write_attestation
from flows.dag.recorded import as_recorded, unedited
from flows.dag.stages import Stage, check_key
from tasks.collapse_monitor.watching import read_new_warnings
from tasks.core.config.params import Params, load_params
from tasks.core.interfaces.stage import Executor, ProcessCache, StageContext
from tasks.core.processes.freed_memory import return_freed_memory
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params

ExecutorFor = Callable[[Stage, Params], Executor]
"""Chooses who plays a stage's rollouts under these parameters."""
_log = logging.getLogger(__name__)


def run_body(
    stage: Stage, key: str, root: Path, cache: ProcessCache, executor_for: ExecutorFor
) -> StageContext[Params]:
    """Run `stage` for `key` with the parameters and the code that are recorded; write what it attests.

    version_stages, which records them, runs with those that lie there now. Returns the context with all parameters in
    it. Raises ParamsError, ArtifactError, NotAsRecorded, UnknownStage (a key that is no key of the stage), and whatever
    the body raises.
    """
    layout = Layout(root)
    if stage.name == "version_stages":
        with unedited(layout.params):
            context = StageContext(layout, load_params(layout.params), key, cache)
            check_key(stage, key, context.inputs)
            stage.load()(context)
        return context
    params = recorded_params(layout)
    check_key(stage, key, params)
    body = stage.load()
    with as_recorded(stage, params, layout, cache) as version:
        try:
            body(StageContext(layout, stage.inputs_of(params), key, cache, executor_for(stage, params)))
        finally:
            return_freed_memory()  # an update leaves gigabytes of holes, and the next stage has the same process
    write_attestation(stage, key, params, version, layout)
    if stage.name == "update_policy":
        _log_warnings(layout, key)
    return StageContext(layout, params, key, cache)


def _log_warnings(layout: Layout, key: str) -> None:
    """Log new signs of a collapse: outside of the stage, so that a new limit makes no update stale."""
    for found in read_new_warnings(layout, key):
        _log.warning("%s: sign of a collapse: %s: %s", key, found.rule, found.evidence)
