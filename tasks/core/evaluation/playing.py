"""Play a policy over a split: for dev evaluation, for scores and for model versions.

Each split has one choice of tasks, seeds and limits, whoever plays it.
"""

import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.core.config.collection import AgentLimits
from tasks.core.config.evaluation import EvaluationConfig, ScoringConfig
from tasks.core.config.splits import Split
from tasks.core.config.stage_inputs import EvaluationInputs, PlayInputs, RescoringInputs, ScoringInputs
from tasks.core.evaluation.scored_rows import outcomes, void_rollouts
from tasks.core.evaluation.tgc_sgc import require_complete
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import Task
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.playing import warm_world
from tasks.core.rollouts.scheduler import CollectionStats
from tasks.core.rollouts.shards import PlayedRollouts, play_in_parts
from tasks.core.seeding import derive_seed
from tasks.core.transient import Transient

_log = logging.getLogger(__name__)
MOST_VOID = 0.05
"""Largest share of void rollouts (each counts as a failure) with which the other rollouts still measure a policy."""


class WorldBroke(RuntimeError, Transient):  # noqa: N818 - as WorldFault
    """A world that broke too many rollouts for a score."""


@dataclass(frozen=True)
class SplitPlan:
    """The tasks of a split to play, and the settings. The same for all policies, so all meet the same draws."""

    split: Split
    tasks: tuple[Task, ...]
    seeds: tuple[int, ...]
    """A seed for each evaluation run, in which every task is played once."""
    settings: PlaySettings


def plan_dev(context: StageContext[EvaluationInputs]) -> SplitPlan:
    """Plan tasks, seeds and limits of dev by the section `evaluation`, without denylisted tasks."""
    inputs = context.inputs
    limits = inputs.evaluation.limits.of(inputs.limits)
    return _plan(context, "dev", inputs.evaluation, limits, ("evaluation",), inputs.denylist)


def plan_test(context: StageContext[ScoringInputs], split: Split) -> SplitPlan:
    """Plan tasks, seeds and limits of another split by the section `scoring`."""
    inputs = context.inputs
    return _plan(context, split, inputs.scoring, inputs.test_limits, ("scoring", split))


def plan_split(context: StageContext[RescoringInputs], split: Split) -> SplitPlan:
    """Plan tasks, seeds and limits of any split, as the stage would that plays it; train is played as a test is."""
    return plan_dev(context) if split == "dev" else plan_test(context, split)


def at_training_budget(context: StageContext[ScoringInputs], plan: SplitPlan) -> SplitPlan:
    """Return the tasks and seeds of `plan` at the limits of collection."""
    return replace(plan, settings=replace(plan.settings, limits=context.inputs.limits))


def _plan(
    context: StageContext[PlayInputs],
    split: Split,
    config: EvaluationConfig | ScoringConfig,
    limits: AgentLimits,
    names: tuple[str, ...],
    denied: Container[str] = (),
) -> SplitPlan:
    tasks = [task for task in warm_world(context).tasks(split) if task.task_id not in denied]
    return SplitPlan(
        split=split,
        tasks=tuple(spread_scenarios(tasks, config.scenarios)),
        seeds=tuple(derive_seed(context.inputs.seed, *names, run) for run in range(config.rollouts_per_task)),
        settings=PlaySettings.of_evaluation(context.inputs, config, limits),
    )


def play_policy(
    context: StageContext[PlayInputs], plan: SplitPlan, checkpoint: Path, policy: str, name: str
) -> PlayedRollouts:
    """Play every task once for every seed with the policy in the folder `checkpoint`.

    The rows follow SCORED_ROLLOUTS, with `policy` as their policy; `name` is that of the play within its split: the
    progress line shows it, and by it a stage that was stopped finds what it had played. Raises ValueError
    unless each task was played once in each run, or when the checkpoint does not fit the base model, ArtifactError when
    world or base policy are missing, and WorldBroke.
    """
    planned = [
        PlannedRollout(task, run, derive_seed(seed, task.task_id))
        for run, seed in enumerate(plan.seeds)
        for task in plan.tasks
    ]
    played = play_in_parts(context, planned, plan.settings, policy=checkpoint, split=plan.split, name=name)
    rows = [row | {"policy": policy, "evaluation_run": row["rollout_index"]} for row in played.rows]
    require_complete(outcomes(rows), len(plan.seeds))
    require_unbroken(void_rollouts(rows), len(rows), f"{plan.split}, {name}", played.stats)
    return replace(played, rows=rows)


def require_unbroken(void: int, rollouts: int, described: str, stats: CollectionStats) -> None:
    """Warn if some rollouts are void. Raises WorldBroke if more than MOST_VOID of them are."""
    if not void:
        return
    fault = stats.timings().most_frequent_fault
    message = f"{described}: the world broke {void} of {rollouts} rollouts, which count as failures{fault}"
    if void > MOST_VOID * rollouts:
        raise WorldBroke(f"{message}; over {MOST_VOID:.0%} of them are no measure of a policy, so no score was written")
    _log.warning("%s", message)


def spread_scenarios(tasks: Sequence[Task], count: int | None) -> list[Task]:
    """Return the tasks of `count` scenarios (None: of all) at equal distances, in their given order."""
    names = list(dict.fromkeys(task.scenario_id for task in tasks))
    some = min(count or len(names), len(names))
    chosen = {names[number * len(names) // some] for number in range(some)}
    return [task for task in tasks if task.scenario_id in chosen]
