"""evaluate_policy@i: a policy plays dev -> data/evaluations/; select_checkpoint: the best -> data/selection.json."""

from tasks.core.engines.registry import forget_paid_answers
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import ApiUsage, Evaluation, write_document
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.tables import write_rows
from tasks.evaluation.evaluating import (
    Row,
    difficulty_scores,
    evaluation_seeds,
    mean_return,
    outcomes,
    play_policy,
    play_settings,
    tasks_to_play,
    void_rollouts,
)
from tasks.evaluation.selecting import candidates, require_evaluated_policy, select
from tasks.evaluation.tgc_sgc import sgc, tgc
from tasks.rollout_collection.rollout_resources import warm_world


def evaluate_policy(context: StageContext) -> None:
    """Play dev with the policy after iteration `context.key`, with the same seeds at every iteration.

    Denylisted tasks are left out. Raises ArtifactError when there is no such policy, ValueError when it does not fit.
    """
    params, layout, key = context.params, context.layout, context.key
    allowed = [task for task in warm_world(context).tasks("dev") if task.task_id not in params.tasks.denylist]
    tasks = tasks_to_play(allowed, params.evaluation)
    seeds = evaluation_seeds(params, params.evaluation.rollouts_per_task, "evaluation")
    settings = play_settings(params, params.evaluation)
    played = play_policy(context, tasks, seeds, settings, layout.policy(key), key, f"dev, {key}")
    write_rows(layout.evaluation_rollouts(key), played.rows, SCORED_ROLLOUTS)
    write_document(layout.evaluation(key), evaluation(key, seeds, played.rows, played.usage))
    forget_paid_answers(params.collection, [task.task_id for task in tasks])


def select_checkpoint(context: StageContext) -> None:
    """Choose among the evaluations of `params.evaluated`.

    Raises ArtifactError when one is missing or damaged, or when the winner's weights are not those that were evaluated.
    """
    layout = context.layout
    selection = select(candidates(layout, context.params.evaluated))
    require_evaluated_policy(layout.policy(selection.iteration), selection)
    write_document(layout.selection, selection)
    print(f"select_checkpoint: {selection.iteration}, dev TGC {selection.dev_tgc:.1f}, SGC {selection.dev_sgc:.1f}")


def evaluation(key: str, seeds: tuple[int, ...], rows: list[Row], usage: ApiUsage | None = None) -> Evaluation:
    """The evaluation document of one policy's dev rollouts."""
    played = outcomes(rows)
    tasks, scenarios = tgc(played), sgc(played)
    return Evaluation(
        iteration=key,
        adapter_digest=rows[0]["adapter_digest"],
        tgc=tasks.value,
        sgc=scenarios.value,
        tgc_se=tasks.standard_error,
        sgc_se=scenarios.standard_error,
        mean_return=mean_return(rows),
        tasks=len({outcome.task_id for outcome in played}),
        scenarios=len({outcome.scenario_id for outcome in played}),
        seeds=seeds,
        per_difficulty=difficulty_scores(played),
        void_rollouts=void_rollouts(rows),
        usage=usage,
    )
