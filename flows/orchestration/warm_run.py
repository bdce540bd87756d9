"""The DAG as the task runs of the Prefect flow run that calls it, in one warm process.

Imports Prefect: import this module late.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prefect.client.schemas.objects import State
from prefect.settings import get_current_settings
from prefect.states import Completed

from flows.dag.dvc_seam import Attempt, Outcome, reproduce, summary
from flows.dag.execution import run_body
from flows.dag.stages import STAGES, find_stage, stage_label
from flows.orchestration.prefect_tasks import executor_shown, stage_task
from flows.orchestration.run_artifacts import RunPage
from flows.workers.async_collector import AsyncCollector, IsDue, can_overlap
from tasks.core.config.params import load_params
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params


def bring_up_to_date(root: Path, targets: list[str], *, sequential: bool = False) -> dict[str, Outcome]:
    """Run what `targets` ([]: everything) lack, each stage as a task run; progress and tables go to the UI.

    Where the parameters allow it, rollouts are collected in a second process while the policy is updated, unless
    `sequential`. The caller holds the checkout. Raises PipelineFailed.
    """
    cache, params = ProcessCache(), load_params(root / "params.yaml")
    names = {stage.name for stage in STAGES}
    tasks: dict[str, Callable[[str, Attempt], Any]] = {}
    collector = None if sequential or not can_overlap(params) else AsyncCollector(root, _prefect_settings())
    page = RunPage(None if targets else sum(len(stage.keys(params)) for stage in STAGES))

    def run(name: str, key: str) -> None:
        from tasks.lineage.stage import record_stage

        if collector is not None and find_stage(name).plays:
            collector.claim_or_run(name, key)
            context = StageContext(Layout(root), recorded_params(Layout(root)), key, cache)
        else:
            context = run_body(find_stage(name), key, root, cache, executor_shown)
        record_stage(context, name)
        if name == "update_policy":
            page.show_warnings(root, key)

    def around(name: str, key: str, attempt: Attempt) -> None:
        if name in names and page.server_answers:
            if name not in tasks:  # not before its first turn, when its version is recorded
                tasks[name] = stage_task(find_stage(name), root)
            tasks[name](stage_label(name, key), attempt)
        else:
            attempt()
        page.advance(stage_label(name, key))

    def beside(name: str, key: str, is_due: IsDue) -> None:
        if collector is not None and name == "update_policy":
            collector.prefetch(key, is_due)

    try:
        outcomes = reproduce(root, targets, run, around, None if collector is None else beside)
    finally:
        if collector is not None:
            collector.close()
        cache.close()
    page.show_outcomes(outcomes)
    page.show_scores(root)
    return outcomes


def _prefect_settings() -> dict[str, str]:
    """Prefect's settings as environment variables, for a process that starts flows too."""
    return get_current_settings().to_environment_variables(exclude_unset=True, include_secrets=True)


def final_state(outcomes: Mapping[str, Outcome]) -> State[Any]:
    """Skipped if every stage was up to date, else Completed; the message counts the stages."""
    idle = set(outcomes.values()) <= {"up to date"}
    return Completed(name="Skipped" if idle else "Completed", message=summary(outcomes))
