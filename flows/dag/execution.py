"""Running one stage's body in this process: what both runners share. Knows neither DVC nor Prefect."""

from collections.abc import Callable
from pathlib import Path

from flows.dag.stages import Stage, check_key
from tasks.core.config.params import Params, load_params
from tasks.core.interfaces.stage import Executor, ProcessCache, StageContext
from tasks.core.records.layout import Layout

ExecutorFor = Callable[[Stage, Params], Executor]
"""Chooses who plays a stage's rollouts under these parameters."""


def run_body(
    stage: Stage, key: str, root: Path, cache: ProcessCache, executor_for: ExecutorFor
) -> StageContext[Params]:
    """Run `stage` for `key` with params.yaml as it is now. Returns the context with all parameters in it.

    Raises ParamsError, UnknownStage (a key that is no key of the stage), and whatever the body raises.
    """
    params = load_params(root / "params.yaml")
    check_key(stage, key, params)
    stage.load()(StageContext(Layout(root), stage.inputs_of(params), key, cache, executor_for(stage, params)))
    return StageContext(Layout(root), params, key, cache)
