"""The DAG as the task runs of the Prefect flow run that calls it, in one warm process.

Imports Prefect: import this module late.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from prefect.client.schemas.objects import State
from prefect.settings import get_current_settings
from prefect.states import Completed

from flows.dag.dvc_seam import Outcome, reproduce, summary
from flows.dag.stages import STAGES, find_stage, stage_label
from flows.runners.async_collector import AsyncCollector, can_overlap
from flows.runners.prefect_runner import PrefectRunner
from flows.runners.run_artifacts import RunPage, lines_in_run_log
from tasks.core.config.params import load_params
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.records.run_manifest import recorded_params


def bring_up_to_date(root: Path, targets: list[str], *, sequential: bool = False) -> dict[str, Outcome]:
    """Run what `targets` ([]: everything) lack, each stage as a task run; progress and tables go to the UI.

    Where the parameters allow it, rollouts are collected in a second process while the policy is updated, unless
    `sequential`. The caller holds the checkout. Raises PipelineFailed.
    """
    cache, params = ProcessCache(), load_params(root / "params.yaml")
    collector = None if sequential or not can_overlap(params) else AsyncCollector(root, _prefect_settings())
    page = RunPage(None if targets else sum(len(stage.keys(params)) for stage in STAGES))
    try:
        outcomes = reproduce(root, targets, WarmRunner(root, cache, collector, page))
    finally:
        if collector is not None:
            collector.close()
        cache.close()
    page.show_outcomes(outcomes)
    if not targets:  # else the scores may be those of the run before
        page.show_scores(root)
    return outcomes


class WarmRunner(PrefectRunner):
    """Runs the stages of one flow run, which can be watched in MLflow and in Prefect's UI meanwhile."""

    def __init__(self, root: Path, cache: ProcessCache, collector: AsyncCollector | None, page: RunPage) -> None:
        super().__init__(root, cache)
        self._collector, self._page = collector, page
        self.iteration_by_iteration = collector is not None

    def run(self, name: str, key: str) -> None:
        """Run a stage and record what it came to; the logs of its task run have its lines too."""
        with lines_in_run_log() if self._page.server_answers else nullcontext():
            self._run(name, key)

    def _run(self, name: str, key: str) -> None:
        """Run a stage, or take the rollouts that the collector has for it, and record what it came to."""
        from tasks.record_lineage import record_stage

        if self._collector is not None and find_stage(name).plays:
            self._require_going_on(name, key)
            self._collector.claim_or_run(name, key)
        else:
            super().run(name, key)
        record_stage(StageContext(self.layout, recorded_params(self.layout), key, self.cache), name)
        if name == "update_policy":
            self._page.show_warnings(self.layout.root, key)

    def attempt(self, stage: str, key: str, attempt: Callable[[], Outcome]) -> None:
        """Make the attempt as a task run, as long as the server answers."""
        if self._page.server_answers:
            super().attempt(stage, key, attempt)
        else:
            attempt()
        self._page.advance(stage_label(stage, key))

    def prepare(self, name: str, key: str, is_due: Callable[[str], bool]) -> None:
        """Collect the rollouts of the next iteration while the policy is updated."""
        if self._collector is not None and name == "update_policy":
            self._collector.prefetch(key, is_due)


def _prefect_settings() -> dict[str, str]:
    """Return Prefect's settings as environment variables, for a process that starts flows too."""
    return get_current_settings().to_environment_variables(exclude_unset=True, include_secrets=True)


def final_state(outcomes: Mapping[str, Outcome]) -> State[Any]:
    """Skipped if every stage was up to date, else Completed; the message counts the stages."""
    idle = set(outcomes.values()) <= {"up to date"}
    return Completed(name="Skipped" if idle else "Completed", message=summary(outcomes))
