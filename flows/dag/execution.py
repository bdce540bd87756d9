"""Running one stage's body in this process: what both runners share. Knows neither DVC nor Prefect."""

import logging
from collections.abc import Callable
from pathlib import Path

from flows.dag.stages import Stage, check_key
from tasks.collapse_monitor.watching import read_new_warnings
from tasks.core.config.params import Params, load_params
from tasks.core.interfaces.stage import Executor, ProcessCache, StageContext
from tasks.core.processes.freed_memory import return_freed_memory
from tasks.core.records.layout import Layout

ExecutorFor = Callable[[Stage, Params], Executor]
"""Chooses who plays a stage's rollouts under these parameters."""
_log = logging.getLogger(__name__)


def run_body(
    stage: Stage, key: str, root: Path, cache: ProcessCache, executor_for: ExecutorFor
) -> StageContext[Params]:
    """Run `stage` for `key` with params.yaml as it is now. Returns the context with all parameters in it.

    Raises ParamsError, UnknownStage (a key that is no key of the stage), and whatever the body raises.
    """
    params = load_params(root / "params.yaml")
    check_key(stage, key, params)
    layout = Layout(root)
    try:
        stage.load()(StageContext(layout, stage.inputs_of(params), key, cache, executor_for(stage, params)))
    finally:
        return_freed_memory()  # an update leaves gigabytes of holes, and the next stage has the same process
    if stage.name == "update_policy":
        _tell_warnings(layout, key)
    return StageContext(layout, params, key, cache)


def _tell_warnings(layout: Layout, key: str) -> None:
    """Outside of the stage, so that a new limit of the collapse monitor makes no update stale."""
    for found in read_new_warnings(layout, key):
        _log.warning("%s: sign of a collapse: %s: %s", key, found.rule, found.evidence)
