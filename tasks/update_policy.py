"""Stage update_policy@i: the previous policy and a training_batch.parquet -> policy/, metrics.json, timings."""

import logging
import shutil

import torch

from tasks.core.config.engine import ENGINES
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.learner.checkpoint import save_learner
from tasks.core.learner.launcher import train_on_ranks
from tasks.core.learner.metrics import trained_metrics, unchanged_metrics, update_timings
from tasks.core.learner.proofs import ENGINE_NOISE
from tasks.core.learner.training import read_batch, train
from tasks.core.learner.update_job import UpdateJob
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import replacing
from tasks.core.records.training import AdvantageSummary, Metrics, Preflight, UpdateTimings

_log = logging.getLogger(__name__)


def update_policy(context: StageContext[UpdateInputs]) -> None:
    """Make one LOOP update in iteration `context.key`. An empty batch leaves the policy unchanged, byte for byte.

    Raises ArtifactError (missing or damaged input), ValueError (a checkpoint that does not fit the base model),
    UpdateDiverged (loss or gradient not finite) or RankFailed (one of several ranks); then nothing is written.
    """
    key, layout = context.key, context.layout
    job = UpdateJob(
        root=layout.root.resolve(),
        key=key,
        inputs=context.inputs,
        passes=read_document(layout.preflight, Preflight).passes,
    )
    summary = read_document(layout.advantage_summary(job.previous.batch), AdvantageSummary)
    rollouts = read_batch(job)
    trained = None
    if not rollouts:
        metrics, timings = unchanged_metrics(summary), UpdateTimings()
    elif job.inputs.update.distributed.size > 1:
        metrics, timings, _ = train_on_ranks(job, context.ranks)
    else:
        trained = train(job, rollouts, context.cache)
        metrics = trained_metrics(
            rollouts, trained.stats, trained.learner, summary, job.inputs.update.loss, job.previous.staleness
        )
        timings = update_timings(trained.stats)
    if not _sampled_by_the_policy(context.inputs):
        metrics = metrics.model_copy(update={"engine_mismatch": None})
    if not rollouts:
        previous = layout.policy(job.previous.policy)
        policy_digest(previous)  # refuses a damaged one
        with replacing(layout.policy(key)) as temporary:
            shutil.copytree(previous, temporary)
    elif trained is not None:  # ranks write their own
        save_learner(trained.learner, layout.policy(key), trained.probe)
    if metrics.note:
        _log.warning("update_policy@%s: %s", key, metrics.note)
    _warn_of_mismatch(metrics, ENGINE_NOISE[getattr(torch, job.inputs.policy.dtype)].mean, key)
    write_document(layout.metrics(key), metrics)
    write_document(layout.update_timings(key), timings)


def _sampled_by_the_policy(inputs: UpdateInputs) -> bool:
    """Return whether the engine had this policy at this temperature, so that its log-probs should be the learner's."""
    return ENGINES.find(inputs.engine).samples_policy and not inputs.temperatures and not inputs.demonstrations


def _warn_of_mismatch(metrics: Metrics, limit: float, key: str) -> None:
    mismatch = metrics.engine_mismatch
    if mismatch is not None and not mismatch.mean <= limit and not metrics.staleness:
        _log.warning(
            "update_policy@%s: the engine's log-probs differ from the learner's by %.2g on average (limit %.2g): "
            "check that the engine samples from this policy, at this temperature, in this precision; "
            "update.loss.correct_engine_mismatch corrects a difference that comes from its kernels",
            key,
            mismatch.mean,
            limit,
        )
