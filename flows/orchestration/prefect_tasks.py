"""Stages as Prefect tasks. Imports Prefect (1.3 s): import this module late."""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

from prefect import Task, flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed
from prefect.tasks import exponential_backoff

from flows.dag.dvc_seam import Attempt, Outcome
from flows.dag.execution import run_body
from flows.dag.recorded import recorded_digest
from flows.dag.stages import Stage, stage_label
from flows.errors import may_pass
from flows.workers.ray_executor import executor_for
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import Executor, ProcessCache
from tasks.core.records.layout import Layout

STATE_NAMES: dict[Outcome, str] = {"up to date": "Skipped", "from cache": "Cached", "run": "Completed"}


def stage_task(stage: Stage, root: Path) -> Callable[[str, Attempt], Any]:
    """Return the Prefect task of a stage, whose version is the one that version_stages recorded.

    Called with the stage's name in DVC and an attempt, it ends Skipped, Cached or Completed.

    No Prefect cache: it would call a deleted artifact, or one made by old code, up to date. DVC is the only cache.
    """
    _say_it_once()

    @task(
        name=stage.name,
        version=recorded_digest(stage, Layout(root)),
        description=f"{stage.body} for each {stage.each}" if stage.each else stage.body,
        task_run_name="{stage_name}",
        retries=stage.retries,
        retry_delay_seconds=exponential_backoff(backoff_factor=2),
        retry_condition_fn=_can_help,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    def run(stage_name: str, attempt: Attempt) -> State[Outcome]:
        outcome = attempt()
        return Completed(name=STATE_NAMES[outcome], message=f"{stage_name}: {outcome}", data=outcome)

    return run


def run_as_flow(stage: Stage, key: str, root: Path, cache: ProcessCache) -> None:
    """Run one stage as a flow run of its own on the configured Prefect server."""
    label = stage_label(stage.name, key)

    def attempt() -> Outcome:
        run_body(stage, key, root, cache, executor_shown)
        return "run"

    @flow(name="stage", flow_run_name=label, validate_parameters=False)
    def stage_flow() -> None:
        stage_task(stage, root)(label, attempt)

    stage_flow()


def executor_shown(stage: Stage, params: Params) -> Executor:
    """Plays the rollouts of `stage`; shards on other machines are Prefect task runs, for as long as they are played."""
    return executor_for(stage, params, _shards_shown)


@contextmanager
def _shards_shown(shards: Sequence[tuple[str, "Future[Any]"]]) -> Iterator[None]:
    @task(name="play_shard", cache_policy=NO_CACHE, persist_result=False)
    def play_shard(place: int) -> None:
        shards[place][1].result()

    with ThreadPoolExecutor(len(shards)) as pool:
        for place, (description, _) in enumerate(shards):
            pool.submit(copy_context().run, play_shard.with_options(task_run_name=description), place)
        yield


def _can_help(_task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Whether a retry might."""
    error = state.result(raise_on_failure=False)
    if isinstance(error, BaseException) and not may_pass(error):
        return False
    print(f"{run.name}: {error!r}; trying again if retries are left", file=sys.stderr)
    return True


def _say_it_once() -> None:
    """Prefect logs the traceback of every failure; the commands say what failed themselves."""
    for name in ("prefect.task_runs", "prefect.flow_runs"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
