"""score@split: base and selected policy play a test split -> data/scores/<split>.json, <split>_rollouts.parquet."""

from collections.abc import Sequence

from tasks.core.config.params import iteration_key
from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.stage_inputs import ScoringInputs
from tasks.core.engines.registry import forget_paid_answers
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.documents import (
    Behaviour,
    BehaviourChange,
    DifficultyScores,
    Scores,
    Selection,
    read_document,
    total_usage,
    write_document,
)
from tasks.core.records.schemas import BASE_POLICY, SCORED_ROLLOUTS, SELECTED_POLICY
from tasks.core.records.tables import write_rows
from tasks.evaluation.behaviour import behaviour
from tasks.evaluation.checkpoint_selection import require_evaluated_policy
from tasks.evaluation.playing import plan_test, play_policy
from tasks.evaluation.scored_rows import (
    Row,
    acted_rollouts,
    difficulty_scores,
    mean_return,
    outcomes,
    void_rollouts,
)
from tasks.evaluation.tgc_sgc import Outcome, sgc, sgc_gain, tgc, tgc_gain
from tasks.evaluation.world_metric import metric_scores
from tasks.rollout_collection.rollout_resources import warm_chat_format

BASE = iteration_key(0)


def score(context: StageContext[ScoringInputs]) -> None:
    """Play the split `context.key` with both policies and the same seeds, and write scores and rollouts.

    A base that was selected is played once, and stands for both.

    Raises ArtifactError when the selected policy's weights are not those that were evaluated on dev.
    """
    split, layout = _split(context.key), context.layout
    selection = read_document(layout.selection, Selection)
    require_evaluated_policy(layout.policy(selection.iteration), selection)
    plan = plan_test(context, split)
    played = {
        key: play_policy(context, plan, layout.policy(key), policy=BASE_POLICY, name=key)
        for key in dict.fromkeys((BASE, selection.iteration))
    }
    base = played[BASE].rows
    selected = [row | {"policy": SELECTED_POLICY} for row in played[selection.iteration].rows]
    write_rows(layout.score_rollouts(split), base + selected, SCORED_ROLLOUTS)
    scores = compare(split, selection, plan.seeds, base, selected, warm_chat_format(context))
    own = metric_scores(context.inputs.world.own_metric, selected, base)
    usage = total_usage(part.usage for part in played.values())
    write_document(layout.score(split), scores.model_copy(update={"usage": usage, "own": own}))
    forget_paid_answers(context.inputs.engine, [task.task_id for task in plan.tasks])


def compare(
    split: Split,
    selection: Selection,
    seeds: tuple[int, ...],
    base_rows: Sequence[Row],
    selected_rows: Sequence[Row],
    chat: ChatFormat,
) -> Scores:
    """The scores document: selected policy beside the base, and the paired gain."""
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
