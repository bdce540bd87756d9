"""Stages as Prefect tasks. Imports Prefect (1.3 s): import this module late."""

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

from flows.dag.dvc_seam import Outcome
from flows.dag.recorded import recorded_digest
from flows.dag.stages import STAGES, Stage, find_stage, stage_label
from flows.errors import may_pass
from flows.runners.plain_runner import PlainRunner
from flows.runners.run_artifacts import keep_prefects_lines_from_the_console
from flows.workers.executors import executor_of
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import Executor, ProcessCache

STATE_NAMES: dict[Outcome, str] = {"up to date": "Skipped", "from cache": "Cached", "run": "Completed"}
_NAMES = frozenset(stage.name for stage in STAGES)


class PrefectRunner(PlainRunner):
    """Runs each stage as a task run of the flow run that it is called in, with the retries of the registry."""

    def __init__(self, root: Path, cache: ProcessCache) -> None:
        super().__init__(root, cache)
        self._tasks: dict[str, Callable[[str, Callable[[], Outcome]], Any]] = {}
        keep_prefects_lines_from_the_console()

    def attempt(self, stage: str, key: str, attempt: Callable[[], Outcome]) -> None:
        """Make the attempt as a task run. A stage that is not ours has none."""
        if stage not in _NAMES:
            attempt()
            return
        if stage not in self._tasks:  # not before its first turn, when its version is recorded
            self._tasks[stage] = stage_task(find_stage(stage), recorded_digest(find_stage(stage), self.layout))
        self._tasks[stage](stage_label(stage, key), attempt)

    def executor(self, stage: Stage, params: Params) -> Executor:
        """Return what plays the rollouts of `stage`; shards on other workers are task runs while they are played."""
        return executor_of(stage, params, _as_task_runs)


def stage_task(stage: Stage, version: str | None) -> Callable[[str, Callable[[], Outcome]], Any]:
    """Return the Prefect task of a stage.

    Called with the stage's name in DVC and an attempt, it ends Skipped, Cached or Completed. No Prefect cache: it would
    call a deleted artifact, or one made by old code, up to date. DVC is the only cache.
    """

    @task(
        name=stage.name,
        version=version,
        description=f"{stage.body} for each {stage.each}" if stage.each else stage.body,
        task_run_name="{stage_name}",
        retries=stage.retries,
        retry_delay_seconds=exponential_backoff(backoff_factor=2),
        retry_condition_fn=_can_help,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    def run(stage_name: str, attempt: Callable[[], Outcome]) -> State[Outcome]:
        outcome = attempt()
        return Completed(name=STATE_NAMES[outcome], message=f"{stage_name}: {outcome}", data=outcome)

    return run


def run_as_flow(name: str, key: str, root: Path, cache: ProcessCache) -> None:
    """Run one stage as a flow run of its own on the configured Prefect server."""
    runner = PrefectRunner(root, cache)

    def attempt() -> Outcome:
        runner.run(name, key)
        return "run"

    @flow(name="stage", flow_run_name=stage_label(name, key), validate_parameters=False)
    def stage_flow() -> None:
        runner.attempt(name, key, attempt)

    stage_flow()


@contextmanager
def _as_task_runs(shards: Sequence[tuple[str, "Future[Any]"]]) -> Iterator[None]:
    """Show shards as task runs until they are played."""

    @task(name="play_shard", cache_policy=NO_CACHE, persist_result=False)
    def play_shard(index: int) -> None:
        shards[index][1].result()

    with ThreadPoolExecutor(len(shards)) as pool:
        for index, (description, _) in enumerate(shards):
            pool.submit(copy_context().run, play_shard.with_options(task_run_name=description), index)
        yield


def _can_help(_task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Return whether a retry may help."""
    error = state.result(raise_on_failure=False)
    if isinstance(error, BaseException) and not may_pass(error):
        return False
    print(f"{run.name}: {error!r}; trying again if retries are left", file=sys.stderr)
    return True
