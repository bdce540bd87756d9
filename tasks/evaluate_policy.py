"""Stage evaluate_policy@i: the policy after an iteration plays dev -> data/evaluations/."""

from tasks.core.config.stage_inputs import EvaluationInputs
from tasks.core.evaluation.playing import plan_dev, play_policy
from tasks.core.evaluation.scored_rows import Row, difficulty_scores, mean_return, metric_score, outcomes, void_rollouts
from tasks.core.evaluation.tgc_sgc import sgc, tgc
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import write_document
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.scores import Evaluation
from tasks.core.records.tables import write_rows
from tasks.core.records.timings import ApiUsage
from tasks.core.rollouts.playing import forget_paid
from tasks.core.rollouts.shards import forget_played


def evaluate_policy(context: StageContext[EvaluationInputs]) -> None:
    """Play dev with the policy after iteration `context.key`, with the same seeds at every iteration.

    Denylisted tasks are left out. Raises ArtifactError when there is no such policy, ValueError when it does not fit.
    """
    layout, key = context.layout, context.key
    plan = plan_dev(context)
    played = play_policy(context, plan, layout.policy(key), policy=key, name=key)
    write_rows(layout.evaluation_rollouts(key), played.rows, SCORED_ROLLOUTS)
    scores = evaluation(key, plan.seeds, played.rows, played.usage)
    own = metric_score(context.inputs.world.settings.own_metric, played.rows)
    write_document(layout.evaluation(key), scores.model_copy(update={"own": own, "world_usage": played.world_usage}))
    forget_played(layout.root, plan.split, key)
    forget_paid(context.inputs, [task.task_id for task in plan.tasks])


def evaluation(key: str, seeds: tuple[int, ...], rows: list[Row], usage: ApiUsage | None = None) -> Evaluation:
    """Return the evaluation document of one policy's dev rollouts."""
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
