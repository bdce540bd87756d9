"""Score models: the stages prepare_world and prepare_policy, then the stages' play, and all models compared.

A score is played in a folder of its own below .loopline/scoring, where a killed attempt is gone on with, and written
whole into the folder of results. What is scored already, with the same code, is not played again.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from flows.dag.checkout_lock import held
from flows.dag.stages import find_stage
from flows.dag.version_stages import CODE, stage_version
from flows.params_file import text_of
from flows.scoring.asked_models import Asked, AskedModel, ReadyModel, ready_model
from flows.workers.executors import executor_of
from tasks.core.config.dag import iteration_key
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import RescoringInputs
from tasks.core.evaluation.playing import plan_split, play_policy
from tasks.core.evaluation.scored_rows import outcomes
from tasks.core.interfaces.engine_kind import find_engine
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.interfaces.world_kind import find_world
from tasks.core.lineage.git_state import git_state
from tasks.core.lineage.mlflow_store import LineageError
from tasks.core.lineage.params_and_metrics import flat_params, params_digest
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.policy_weights import require_base_of_adapter
from tasks.core.records.comparison import ALL_LEVELS, Comparison, ModelScore, ScoreLineage
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import digest, remembered_digest, replacing
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import SCORED_ROLLOUTS, SELECTED_POLICY
from tasks.core.records.tables import read_table, write_rows
from tasks.core.rollouts.playing import forget_paid, warm_chat_format
from tasks.core.scored_models.comparing import PlayedModel, compared, write_comparison
from tasks.core.scored_models.scoring import INSPECT, facts, model_score, record_score, scored_trials, write_inspect_log

WORK = Path(".loopline") / "scoring"
SCORE, ROLLOUTS, PARAMS = "score.json", "rollouts.parquet", "params.yaml"
PACKAGE = "package"
"""Folder of the files that the world's own package reads; only where there is such a package."""


@dataclass(frozen=True)
class ScoredModel:
    """A model's score, and the folder that it lies in."""

    score: ModelScore
    folder: Path
    params: Params

    @property
    def played(self) -> PlayedModel:
        """The model as it is compared."""
        score, rows = self.score, read_table(self.folder / ROLLOUTS, SCORED_ROLLOUTS).to_pylist()
        by_split = {score.split: score.scores}
        return PlayedModel(score.name, facts(score), by_split, {score.split: outcomes(rows)}, flat_params(self.params))


def score_model(model: ReadyModel, asked: Asked, into: Path, cache: ProcessCache) -> ScoredModel:
    """Score a model, or read the score that is there; `into` is the folder of results.

    Raises ArtifactError, ValueError for a checkpoint that does not fit its base, ChatApiError, WorldBroke.
    """
    key = score_key(model, asked)
    folder = into / f"{model.asked.short}-{key[:8]}"
    if (folder / SCORE).exists() and (found := read_document(folder / SCORE, ModelScore)).key == key:
        print(f"{model.asked.text}: scored already, in {folder}", file=sys.stderr)
        return ScoredModel(found, folder, model.params)
    work = asked.root / WORK / key[:16]
    with held(work / "run.lock", f"loopline score {model.asked.text}", "on this score"):
        context = _prepared(model, work, key, cache)
        score = _played(model, asked, context, folder)
    cache.drop("world")
    shutil.rmtree(work)
    return ScoredModel(score, folder, model.params)


def score_key(model: ReadyModel, asked: Asked) -> str:
    """Return the digest of all that a score follows from, found without playing: model, split, parameters, code."""
    source = Path(model.params.policy.source)
    content = [
        [model.asked.kind, model.asked.name, model.asked.at if model.checkpoint is None else ""],
        policy_digest(model.checkpoint) if model.checkpoint else "",
        sorted((file.name, remembered_digest(file)) for file in source.glob("*") if file.is_file()),
        asked.split,
        params_digest(model.params),
        stage_version(find_stage("score"), model.params, CODE).digest,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _prepared(model: ReadyModel, work: Path, key: str, cache: ProcessCache) -> StageContext[RescoringInputs]:
    """Run the first stages in the folder `work`, unless they have run, and hold the checkpoint against its base."""
    layout, params = Layout(work), model.params
    for name, made in (("prepare_world", layout.world), ("prepare_policy", layout.policy(iteration_key(0)))):
        if not made.exists():
            stage = find_stage(name)
            stage.load()(StageContext(layout, stage.inputs_of(params), cache=cache))
    if model.checkpoint is not None and find_engine(params.engine.name).in_process:  # servers are asked for proof
        require_base_of_adapter(model.checkpoint, layout.base_policy, params.policy, params.policy.source)
    executor = executor_of(find_stage("score"), params)
    return StageContext(layout, RescoringInputs.of(params), cache=cache, executor=executor, version=key)


def _played(model: ReadyModel, asked: Asked, context: StageContext[RescoringInputs], folder: Path) -> ModelScore:
    """Play the split, and write the folder of its score, whole or not at all."""
    params, world = model.params, find_world(model.params.world.name)
    checkpoint = model.checkpoint or context.layout.policy(iteration_key(0))
    plans = [plan_split(context, split) for split in world.splits(asked.split)]
    parts = [play_policy(context, plan, checkpoint, SELECTED_POLICY, model.asked.short) for plan in plans]
    rows, chat = [row for part in parts for row in part.rows], warm_chat_format(context)
    named = {"key": context.version, "model": model.asked.text, "name": folder.name, "kind": model.asked.kind}
    lineage = _lineage(model, asked.root, context.layout, checkpoint)
    score = model_score(params, plans, parts, chat, split=asked.split, lineage=lineage, **named)
    with replacing(folder) as temporary:
        temporary.mkdir(parents=True)
        write_rows(temporary / ROLLOUTS, rows, SCORED_ROLLOUTS)
        (temporary / PARAMS).write_text(text_of(params), encoding="utf-8")
        write_inspect_log(temporary / INSPECT, score, rows, chat)
        world.write_results(scored_trials(score, params, rows, chat, context.layout.world, temporary / PACKAGE))
        write_document(temporary / SCORE, score)
    forget_paid(context.inputs, [task.task_id for plan in plans for task in plan.tasks])
    return score


def _lineage(model: ReadyModel, root: Path, layout: Layout, checkpoint: Path) -> ScoreLineage:
    state = git_state(root)
    return ScoreLineage(
        code=stage_version(find_stage("score"), model.params, CODE).code,
        params=params_digest(model.params),
        world=digest(layout.world),
        base=digest(layout.base_policy),
        weights=None if model.asked.kind == "api" else policy_digest(checkpoint),
        git_commit=state.commit,
        git_dirty=state.dirty,
        loopline=version("loopline"),
    )


def scored(models: Sequence[AskedModel], asked: Asked, into: Path) -> tuple[Comparison, bool]:
    """Score all models; return them compared, and whether all of it is recorded in MLflow too.

    The comparison of several is written beside the scores. Raises what `ready_model` and `score_model` raise; models
    that were scored before that stay scored.
    """
    cache = ProcessCache()
    try:
        found = [score_model(ready_model(model, asked), asked, into, cache) for model in models]
    finally:
        cache.close()
    level = found[0].score.scores.levels[ALL_LEVELS]
    title = f"{asked.world}, {asked.split}: {level.tasks} tasks of {level.scenarios} scenarios, percent"
    comparison = compared(title, [each.played for each in found])
    if len(found) > 1:
        key = hashlib.sha256("".join(each.score.key for each in found).encode()).hexdigest()
        write_comparison(into / f"comparison-{key[:8]}", comparison)
    recorded = [_recorded(each, asked.root) for each in found]
    return comparison, all(recorded)


def _recorded(each: ScoredModel, root: Path) -> bool:
    try:
        record_score(each.score, each.params, each.folder, root)
    except LineageError as error:
        print(f"{error}. The score is in {each.folder}; the same command records it later", file=sys.stderr)
        return False
    return True
