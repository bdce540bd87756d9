"""From a model's rollouts to its document. Pure, except for decoding tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.core.config.params import Params
from tasks.core.evaluation.behaviour import behaviour
from tasks.core.evaluation.level_scores import split_scores
from tasks.core.evaluation.playing import SplitPlan
from tasks.core.evaluation.scored_rows import (
    Row,
    acted_rollouts,
    answers,
    mean_return,
    metric_score,
    outcomes,
    void_rollouts,
)
from tasks.core.interfaces.world_kind import ScoredEpisode, ScoredTrials
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.comparison import ModelScore
from tasks.core.records.scores import EpisodeLimits
from tasks.core.records.timings import total_usage
from tasks.core.rollouts.episode import WORLD_SEED
from tasks.core.rollouts.shards import PlayedRollouts
from tasks.core.seeding import derive_seed


def model_score(
    params: Params, plans: Sequence[SplitPlan], parts: Sequence[PlayedRollouts], chat: ChatFormat, **named: Any
) -> ModelScore:
    """Return the document of what was played; `named` are the fields that say whose score it is and what made it."""
    settings, rows = plans[0].settings, [row for part in parts for row in part.rows]
    acted = behaviour(list(acted_rollouts(rows, chat)))
    return ModelScore(
        world=params.world.name,
        seeds=tuple(seed for plan in plans for seed in plan.seeds),
        temperature=settings.temperature,
        limits=EpisodeLimits(**settings.limits.model_dump()),
        scores=split_scores(outcomes(rows), acted, metric_score(params.world.settings.own_metric, rows)),
        mean_return=mean_return(rows),
        void_rollouts=void_rollouts(rows),
        usage=total_usage(part.usage for part in parts),
        world_usage=total_usage(part.world_usage for part in parts),
        **named,
    )


def facts(score: ModelScore) -> dict[str, str]:
    """Return what a table says of a score beside the figures by difficulty."""
    paid = {"paid": score.usage, "paid by the world": score.world_usage}
    return {
        "runs": str(score.scores.rollouts_per_task),
        "mean return": f"{score.mean_return:.3f}",
        "void": str(score.void_rollouts),
        **{name: f"{one.answers:,} answers, {one.cost_usd:,.2f} USD" for name, one in paid.items() if one is not None},
    }


def scored_trials(
    score: ModelScore, params: Params, rows: Sequence[Row], chat: ChatFormat, world: Path, folder: Path
) -> ScoredTrials[Any]:
    """Return the episodes for the package that the world comes from."""
    cost, world_cost = (0.0 if used is None else used.cost_usd / len(rows) for used in (score.usage, score.world_usage))
    return ScoredTrials(
        settings=params.world.settings,
        code_blocks=params.world.code_blocks,
        world=world,
        split=score.split,
        episodes=[_episode(row, chat) for row in rows],
        trials=score.scores.rollouts_per_task,
        model=score.model.split(" ")[-1],  # without a server's address
        temperature=score.temperature,
        git_commit=score.lineage.git_commit,
        cost=cost,
        world_cost=world_cost,
        folder=folder,
    )


def _episode(row: Row, chat: ChatFormat) -> ScoredEpisode:
    return ScoredEpisode(
        task_id=row["task_id"],
        turns=tuple(answers(row, chat)),
        success=row["success"],
        passed=row["tests_passed"],
        failed=row["tests_failed"],
        trial=row["evaluation_run"],
        seed=derive_seed(row["seed"], row["world_retries"], WORLD_SEED),
    )
