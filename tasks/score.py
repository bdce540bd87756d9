"""Stage score@split: base and selected policy play a test split.

It writes data/scores/<split>.json, <split>_rollouts.parquet and <split>_training_budget_rollouts.parquet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.core.config.dag import iteration_key
from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.stage_inputs import ScoringInputs
from tasks.core.evaluation.behaviour import behaviour
from tasks.core.evaluation.playing import SplitPlan, at_training_budget, plan_test, play_policy
from tasks.core.evaluation.scored_rows import (
    Row,
    acted_rollouts,
    difficulty_scores,
    mean_return,
    metric_scores,
    outcomes,
    void_rollouts,
)
from tasks.core.evaluation.tgc_sgc import Outcome, paired_runs_scores, sgc, sgc_gain, tgc, tgc_gain
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.selected_policy import require_evaluated_policy
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.schemas import BASE_POLICY, SCORED_ROLLOUTS, SELECTED_POLICY
from tasks.core.records.scores import (
    Behaviour,
    BehaviourChange,
    DifficultyScores,
    EpisodeLimits,
    PairedScores,
    Scores,
    Selection,
    TrainingBudget,
)
from tasks.core.records.tables import write_rows
from tasks.core.records.timings import ApiUsage, total_usage
from tasks.core.rollouts.playing import forget_paid, warm_chat_format
from tasks.core.rollouts.shards import forget_played

BASE = iteration_key(0)


@dataclass(frozen=True)
class PlayedSplit:
    """A split played at one budget; without rows where it was not played."""

    base: list[Row] = field(default_factory=list)
    selected: list[Row] = field(default_factory=list)
    usage: ApiUsage | None = None
    world_usage: ApiUsage | None = None


def score(context: StageContext[ScoringInputs]) -> None:
    """Play the split `context.key` with both policies and the same seeds, and write scores and rollouts.

    A base that was selected is played once, and counts as both. `scoring.at_training_budget` plays all of it again at
    the limits of collection, into a table of its own, where these limits differ. Raises ArtifactError when the selected
    policy's weights are not those that were evaluated on dev.
    """
    split, layout, inputs = _split(context.key), context.layout, context.inputs
    selection = read_document(layout.selection, Selection)
    require_evaluated_policy(layout.policy(selection.iteration), selection)
    plan = plan_test(context, split)
    played, again = _play(context, plan, selection), PlayedSplit()
    if inputs.plays_again:
        again = _play(context, at_training_budget(context, plan), selection, ", at the training budget")
    write_rows(layout.score_rollouts(split), played.base + played.selected, SCORED_ROLLOUTS)
    write_rows(layout.training_budget_rollouts(split), again.base + again.selected, SCORED_ROLLOUTS)
    scores = _scores(context, plan, selection, played)
    if inputs.scoring.at_training_budget:
        trained_at = _scores(context, plan, selection, again) if inputs.plays_again else scores
        scores = scores.model_copy(update={"training_budget": _training_budget(inputs, trained_at)})
    used = {name: total_usage(getattr(one, name) for one in (played, again)) for name in ("usage", "world_usage")}
    write_document(layout.score(split), scores.model_copy(update=used))
    forget_played(layout.root, split)
    forget_paid(inputs, [task.task_id for task in plan.tasks])


def _play(
    context: StageContext[ScoringInputs], plan: SplitPlan, selection: Selection, described: str = ""
) -> PlayedSplit:
    played = {
        key: play_policy(context, plan, context.layout.policy(key), policy=BASE_POLICY, name=f"{key}{described}")
        for key in dict.fromkeys((BASE, selection.iteration))
    }
    selected = [row | {"policy": SELECTED_POLICY} for row in played[selection.iteration].rows]
    return PlayedSplit(
        played[BASE].rows,
        selected,
        total_usage(part.usage for part in played.values()),
        total_usage(part.world_usage for part in played.values()),
    )


def _scores(context: StageContext[ScoringInputs], plan: SplitPlan, selection: Selection, played: PlayedSplit) -> Scores:
    chat = warm_chat_format(context)
    scores = compare(plan.split, selection, plan.seeds, played.base, played.selected, chat)
    own = metric_scores(context.inputs.world.settings.own_metric, played.selected, played.base)
    return scores.model_copy(update={"own": own})


def _training_budget(inputs: ScoringInputs, scores: Scores) -> TrainingBudget:
    """Return the figures of `scores`, which were taken at the training budget, and the names of both budgets."""
    return TrainingBudget(
        limits=EpisodeLimits(**inputs.limits.model_dump()),
        test_limits=EpisodeLimits(**inputs.test_limits.model_dump()),
        played_again=inputs.plays_again,
        **{name: getattr(scores, name) for name in PairedScores.model_fields},
    )


def compare(
    split: Split,
    selection: Selection,
    seeds: tuple[int, ...],
    base_rows: Sequence[Row],
    selected_rows: Sequence[Row],
    chat: ChatFormat,
) -> Scores:
    """Return the scores document: selected policy, base, and the paired gain."""
    base, selected = outcomes(base_rows), outcomes(selected_rows)
    estimates = {"tgc": tgc(selected), "sgc": sgc(selected), "base_tgc": tgc(base), "base_sgc": sgc(base)}
    estimates |= {"tgc_gain": tgc_gain(selected, base), "sgc_gain": sgc_gain(selected, base)}
    values = {name: estimate.value for name, estimate in estimates.items()}
    errors = {f"{name}_se": estimate.standard_error for name, estimate in estimates.items()}
    return Scores(
        split=split,
        iteration=selection.iteration,
        adapter_digest=selection.adapter_digest,
        mean_return=mean_return(selected_rows),
        base_mean_return=mean_return(base_rows),
        tasks=len({outcome.task_id for outcome in base}),
        scenarios=len({outcome.scenario_id for outcome in base}),
        seeds=seeds,
        per_difficulty=_per_difficulty(selected, base),
        per_k=paired_runs_scores(selected, base),
        behaviour=BehaviourChange(base=_behaviour(base_rows, chat), selected=_behaviour(selected_rows, chat)),
        void_rollouts=void_rollouts([*base_rows, *selected_rows]),
        **values,  # type: ignore[arg-type]
        **errors,  # type: ignore[arg-type]
    )


def _behaviour(rows: Sequence[Row], chat: ChatFormat) -> Behaviour:
    return behaviour(list(acted_rollouts(rows, chat)))


def _per_difficulty(selected: Sequence[Outcome], base: Sequence[Outcome]) -> dict[str, DifficultyScores]:
    ours, theirs = difficulty_scores(selected), difficulty_scores(base)
    return {
        level: DifficultyScores(**ours[level].model_dump(), base_tgc=score.tgc, base_tgc_se=score.tgc_se)
        for level, score in theirs.items()
    }


def _split(key: str) -> Split:
    for split in SPLITS:
        if key == split:
            return split  # type: ignore[no-any-return]
    raise ValueError(f"score: unknown split {key!r}; one of {', '.join(SPLITS)}")
