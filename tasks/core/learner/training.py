"""One update from files to a trained learner, the same in a stage's single process and on each of several ranks."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import nn

from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.learner.checkpoint import restore_optimizer
from tasks.core.learner.critic import make_critic, restore_critic
from tasks.core.learner.distributed import SINGLE, ProcessGroup
from tasks.core.learner.learner import (
    Learner,
    UpdateDiverged,
    UpdateStats,
    free_gradients,
    make_learner,
    prepare_forward,
    update,
    uses_fsdp,
)
from tasks.core.learner.logprobs import ReferenceView
from tasks.core.learner.model import suggested
from tasks.core.learner.packing import Rollout, read_rollouts
from tasks.core.learner.proofs import ProbeTokens, Readings, learner_record, probe_tokens, prove_passes, read_tokens
from tasks.core.learner.update_job import UpdateJob
from tasks.core.policies.checkpoint_files import read_model_config
from tasks.core.policies.loading import (
    allocate,
    device,
    empty_base_model,
    fill_base,
    is_lora,
    load_base_model,
    load_weights,
    with_trained_part,
)
from tasks.core.records.delivery_probe import DeliveryProbe
from tasks.core.records.files import ArtifactError, fingerprint
from tasks.core.records.schemas import TRAINING_BATCH
from tasks.core.records.tables import read_table
from tasks.core.records.training import Passes
from tasks.core.seeding import derive_seed


def read_batch(job: UpdateJob) -> list[Rollout]:
    """Read the rollouts to train on. Raises ArtifactError naming file, row and rule."""
    path = job.layout.training_batch(job.previous.batch)
    try:
        return read_rollouts(read_table(path, TRAINING_BATCH))
    except ArtifactError:
        raise
    except ValueError as error:
        raise ArtifactError(f"{path}: {error}") from None


class Trained(NamedTuple):
    """An updated policy, not on disk yet."""

    learner: Learner
    stats: UpdateStats
    probe: DeliveryProbe
    """Its record, without the weights' digest."""
    passes: Passes
    """How forward passes took the rollouts."""


def train(job: UpdateJob, rollouts: list[Rollout], cache: ProcessCache, group: ProcessGroup = SINGLE) -> Trained:
    """Load the policy of `job.previous.policy` and update it. Writes nothing.

    Raises ArtifactError (missing or damaged input), ValueError (a checkpoint that does not fit the base model) or
    UpdateDiverged (loss or gradient not finite), on every rank alike, and AnotherFunction (see `prove_passes`).
    """
    learner = _load_learner(job, cache, group)
    passes = prove_passes(learner.policy, job.inputs.update, job.passes) if job.proves_passes else job.passes
    vocabulary = int(read_model_config(job.layout.base_policy)["vocab_size"])
    tokens = probe_tokens(job.layout.policy(job.previous.policy), vocabulary, rollouts)
    previous = read_tokens(learner.policy, tokens, job.inputs.update, group)
    try:
        stats = update(
            learner,
            rollouts,
            job.inputs.update,
            temperature=job.inputs.temperature,
            seed=derive_seed(job.inputs.seed, "update_policy", job.key),
            reference_view=_reference_view(job, learner),
            stale=job.previous.staleness > 0,
            information=job.inputs.information,
            name=f"update {job.key}",
        )
    except UpdateDiverged as error:
        raise UpdateDiverged(f"update_policy@{job.key}: {error}") from None
    free_gradients(learner)
    return Trained(learner, stats, _record(job, learner, tokens, previous), passes or suggested(learner.policy))


def _record(job: UpdateJob, learner: Learner, tokens: ProbeTokens, previous: Readings) -> DeliveryProbe:
    """Record the updated policy's log-probs of the probe's tokens, with those of the previous and the base policy."""
    now, base = read_tokens(learner.policy, tokens, job.inputs.update, learner.group), None
    if is_lora(learner.policy):  # the base of a fully trained policy would have to be loaded for it
        with _without_adapter(learner.policy) as view:
            base = read_tokens(view, tokens, job.inputs.update, learner.group)
    return learner_record(tokens, now, base, previous, job.inputs.policy.dtype, device(job.inputs.policy).type)


def _load_learner(job: UpdateJob, cache: ProcessCache, group: ProcessGroup) -> Learner:
    """Return the learner as iteration `previous` left it. The base model itself is loaded once per process."""
    folder, previous = job.layout.base_policy, job.layout.policy(job.previous.policy)

    def load() -> nn.Module:
        # The checkpoint of a policy that is trained whole holds every weight, so the base model's are not read.
        return load_prepared(
            folder, job.inputs.policy, job.inputs.update, group, filled=job.inputs.policy.trained == "lora"
        )

    computing = (job.inputs.update.activation_checkpointing, job.inputs.update.fold_adapter)
    policy = cache.get("learner_policy", (fingerprint(folder), job.inputs.policy, computing), load)
    load_weights(policy, previous)
    learner = make_learner(policy, job.inputs.update, group, job.passes)
    restore_optimizer(learner, previous)
    if job.inputs.update.critic is not None:
        seed = derive_seed(job.inputs.seed, "critic")
        config, weight = cast(Any, policy.config).get_text_config(), next(policy.parameters())
        learner.critic = make_critic(config.hidden_size, job.inputs.update.critic, weight.device, seed)
        restore_critic(learner.critic, previous)
    return learner


def load_prepared(
    folder: Path, policy: PolicyConfig, update: UpdateConfig, group: ProcessGroup, *, filled: bool = True
) -> nn.Module:
    """Return the base model with its trained part, ready to compute as `update` says, before a checkpoint's weights.

    Ranks that share one model build it empty, shard it, and then read their parts of its files. Without `filled` its
    weights have memory but no values.
    """
    if filled and not uses_fsdp(update, group):
        model = with_trained_part(load_base_model(folder, policy), policy)
        prepare_forward(model, update, group)
        return model
    model = with_trained_part(empty_base_model(folder, policy), policy)
    prepare_forward(model, update, group)
    allocate(model, group.device if uses_fsdp(update, group) else device(policy))
    if filled:
        fill_base(model, folder, quiet=not group.is_main)
    return model


def _reference_view(job: UpdateJob, learner: Learner) -> ReferenceView:
    """Return a view of the base policy: the adapter switched off, or (fully trained policy) the base loaded again."""
    views: dict[str, Callable[[], AbstractContextManager[nn.Module]]] = {
        "lora": lambda: _without_adapter(learner.policy),
        "full": lambda: _separate_base(job, learner.group),
    }
    return views[job.inputs.policy.trained]


@contextmanager
def _without_adapter(policy: nn.Module) -> Iterator[nn.Module]:
    with policy.disable_adapter():  # type: ignore[operator]
        yield policy


@contextmanager
def _separate_base(job: UpdateJob, group: ProcessGroup) -> Iterator[nn.Module]:
    """Load the base policy. The caller drops its reference before closing: the model's patched methods refer to it, and
    it is as large as the policy.
    """
    yield load_prepared(job.layout.base_policy, job.inputs.policy, job.inputs.update, group).requires_grad_(False)
    gc.collect()
