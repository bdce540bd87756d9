"""Playing a policy over the tasks of a split, for dev evaluation and for scoring alike."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tasks.core.config.evaluation import EvaluationConfig
from tasks.core.config.params import Params
from tasks.core.config.scoring import ScoringConfig
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import Task
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.documents import DifficultyScore
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.seeding import derive_seed
from tasks.evaluation.behaviour import ActedRollout
from tasks.evaluation.tgc_sgc import Outcome, by_difficulty, require_complete, tgc
from tasks.rollout_collection.agent_loop import PlaySettings
from tasks.rollout_collection.planning import PlannedRollout
from tasks.rollout_collection.shards import Played, play_in_shards

Row = dict[str, Any]
"""A row of `records.schemas.SCORED_ROLLOUTS`."""


def tasks_to_play(tasks: Sequence[Task], config: EvaluationConfig | ScoringConfig) -> list[Task]:
    """The tasks of the split's first `config.scenarios` scenarios (None: of all), in their given order."""
    scenarios = list(dict.fromkeys(task.scenario_id for task in tasks))[: config.scenarios]
    return [task for task in tasks if task.scenario_id in set(scenarios)]


def evaluation_seeds(params: Params, runs: int, *names: str) -> tuple[int, ...]:
    """One seed for each evaluation run. They know nothing of the policy, so that all meet the same draws."""
    return tuple(derive_seed(params.seed, *names, run) for run in range(runs))


def play_settings(params: Params, config: EvaluationConfig | ScoringConfig) -> PlaySettings:
    """Evaluation's temperature and limits; collection's number of live episodes and retries; no early stop."""
    return PlaySettings(
        temperature=config.temperature,
        limits=config.limits,
        max_concurrent_episodes=params.collection.max_concurrent_episodes,
        world_retries=params.collection.world_retries,
    )


def play_policy(
    context: StageContext,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    settings: PlaySettings,
    checkpoint: Path,
    name: str,
    description: str,
) -> Played:
    """Play every task once for every seed with the policy in the folder `checkpoint`.

    The rows are those of SCORED_ROLLOUTS, their policy is `name`. Raises ValueError unless each task was played once in
    each run, or when the checkpoint does not fit the base model.
    """
    planned = [
        PlannedRollout(task, run, derive_seed(seed, task.task_id)) for run, seed in enumerate(seeds) for task in tasks
    ]
    played = play_in_shards(context, planned, settings, policy=checkpoint, description=description)
    rows = [row | {"policy": name, "evaluation_run": row["rollout_index"]} for row in played.rows]
    require_complete(outcomes(rows), len(seeds))
    return replace(played, rows=rows)


def outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """What counts for TGC and SGC. A rollout that the world broke is a failure here, since no verdict speaks for it."""
    return [
        Outcome(row["task_id"], row["scenario_id"], row["difficulty"], row["evaluation_run"], row["success"])
        for row in rows
    ]


def difficulty_scores(played: Sequence[Outcome]) -> dict[str, DifficultyScore]:
    """TGC of each difficulty level."""
    return {str(level): _difficulty_score(part) for level, part in by_difficulty(played).items()}


def mean_return(rows: Sequence[Row]) -> float:
    """Mean return of the rollouts, a share."""
    return float(np.mean([row["return"] for row in rows]))


def void_rollouts(rows: Sequence[Row]) -> int:
    """How many rollouts the world broke."""
    return sum(row["end_reason"] in VOID_REASONS for row in rows)


def acted_rollouts(rows: Sequence[Row], chat: ChatFormat) -> Iterator[ActedRollout]:
    """The rollouts as the behaviour metrics take them, without void ones, which the world cut short."""
    for row in rows:
        if row["end_reason"] not in VOID_REASONS:
            yield ActedRollout(row["task_id"], row["success"], row["turns"], "\n".join(turn_texts(row, chat)))


def turn_texts(row: Row, chat: ChatFormat) -> list[str]:
    """The policy's own turns as text."""
    ids, turn_index = np.asarray(row["token_ids"]), np.asarray(row["turn_index"])
    turns = range(max(row["turn_index"], default=-1) + 1)
    return [chat.decode(ids[turn_index == turn].tolist()) for turn in turns]


def _difficulty_score(played: Sequence[Outcome]) -> DifficultyScore:
    estimate = tgc(played)
    tasks = len({outcome.task_id for outcome in played})
    return DifficultyScore(tasks=tasks, tgc=estimate.value, tgc_se=estimate.standard_error)
