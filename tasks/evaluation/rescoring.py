"""Playing a policy that is no checkpoint of this pipeline run (a model version) on the splits, as the stages would."""

from pathlib import Path

from tasks.core.config.params import Params
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import Split, Task
from tasks.evaluation.evaluating import (
    Row,
    evaluation_seeds,
    play_policy,
    play_settings,
    tasks_to_play,
)
from tasks.rollout_collection.rollout_resources import warm_world


def rescore(context: StageContext, splits: tuple[Split, ...], checkpoint: Path, name: str) -> dict[str, list[Row]]:
    """Play every split with the policy in the folder `checkpoint`, with the seeds and limits of params.yaml.

    Returns rows of SCORED_ROLLOUTS by split, whose policy is "selected"; `name` is what the progress line says.
    Raises ArtifactError when world or base policy are missing, ValueError when the checkpoint does not fit the base.
    """
    return {split: _play(context, split, checkpoint, name) for split in splits}


def _play(context: StageContext, split: Split, checkpoint: Path, name: str) -> list[Row]:
    params = context.params
    config = params.evaluation if split == "dev" else params.scoring
    tasks = tasks_to_play(_allowed(context, split), config)
    settings, seeds = play_settings(params, config), _seeds(params, split)
    return play_policy(context, tasks, seeds, settings, checkpoint, "selected", f"{split}, {name}").rows


def _allowed(context: StageContext, split: Split) -> list[Task]:
    denied = context.params.tasks.denylist if split == "dev" else ()
    return [task for task in warm_world(context).tasks(split) if task.task_id not in denied]


def _seeds(params: Params, split: Split) -> tuple[int, ...]:
    if split == "dev":
        return evaluation_seeds(params, params.evaluation.rollouts_per_task, "evaluation")
    return evaluation_seeds(params, params.scoring.evaluation_runs, "scoring", split)
