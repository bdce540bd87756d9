"""The `update` section of params.yaml: loss, optimizer and batching of one LOOP update."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from tasks.core.config.section import UNVERSIONED, Section


class LossConfig(Section):
    """The clipped policy-gradient loss (LOOP eq. 6 to 8)."""

    importance: Literal["token", "turn", "trajectory"] = "token"
    """Unit over which the importance weight is a product: each token, each assistant turn, the whole rollout."""
    clip_epsilon: float = Field(0.1, gt=0, lt=1)
    clip_epsilon_high: float | None = Field(None, gt=0)
    """Upper bound 1 + this (clip-higher); None: as `clip_epsilon`."""
    lower_bound: Literal["reciprocal", "symmetric"] = "reciprocal"
    """Lower bound of the importance weight: 1 / (1 + eps), or 1 - eps."""
    max_behaviour_weight: float = Field(2.0, gt=0)
    """Cap of the weight pi_old / pi_behaviour (truncated importance sampling), with pi_behaviour as the engine reported
    it. It corrects stale rollouts (`collection.staleness` above 0), and engines if `correct_engine_mismatch`."""
    correct_engine_mismatch: bool = False
    """Weight fresh rollouts as well. To be turned on for an engine that does not compute as the learner does (vLLM's
    kernels in bfloat16, a quantised model or cache), say when `update_policy` warns of `max_engine_mismatch`; off where
    both agree, as the embedded policy's engine and learner do: the weights are then 1 up to rounding."""
    kl_coefficient: float = Field(0.0, ge=0)
    """Weight of the k3 estimate of KL(policy || base policy); 0: no reference forward pass is made."""
    entropy_coefficient: float = Field(0.0, ge=0)


class DistributedConfig(Section):
    """The processes of one update; more than one are started by torch's elastic launcher, as `torchrun` does."""

    ranks: int = Field(1, ge=1)
    """Processes on each machine: one per GPU."""
    nodes: int = Field(1, ge=1)
    """Machines. `update_policy` logs the command that the others run; they share the project's folder."""
    rendezvous: Annotated[str | None, UNVERSIONED] = Field(None, pattern=r"^\S+:\d+$")
    """host:port of the machine that runs the pipeline, where the others find it; needed when nodes > 1."""
    sharding: Literal["fsdp", "replicated"] = "fsdp"
    """`fsdp`: weights, gradients and optimizer in equal parts over the ranks (FSDP2); `replicated`: all on all."""
    timeout_s: Annotated[float, UNVERSIONED] = Field(1800.0, gt=0)
    """A rank that has waited this long for the others fails, and the update with it."""

    @property
    def size(self) -> int:
        """Ranks in all."""
        return self.ranks * self.nodes

    @model_validator(mode="after")
    def _machines_have_a_place_to_meet(self) -> "DistributedConfig":
        if self.nodes > 1 and self.rendezvous is None:
            raise ValueError("nodes > 1 needs rendezvous: host:port of the machine that runs the pipeline")
        return self


class KlStop(Section):
    """When an update ends before its last minibatch: the policy is too far from the one before the update."""

    estimator: Literal["k1", "k3"] = "k1"
    """Of KL(policy before || policy now), with x = log pi - log pi_before of a sampled token. k1: -x, and the absolute
    value of its mean counts, as in LOOP's code. k3: e^x - 1 - x, to which one token of x = 6.5 in 32 rollouts adds 20.
    Sums over a rollout's tokens, mean over the minibatch's rollouts."""
    limit: float = Field(20.0, gt=0)
    """In nats. LOOP's code: 20."""


class UpdateConfig(Section):
    """One policy update. The paper: AdamW, 5e-5, gradient norm 1, minibatch 32, 2 epochs."""

    renamed: ClassVar = {"warmup_updates": "warmup_steps", "max_kl": "kl_stop.limit"}

    loss: LossConfig = LossConfig()
    epochs: int = Field(2, ge=1)
    minibatch: int | None = Field(32, ge=1)
    """Rollouts per optimizer step, and the constant divisor of the loss; None: all rollouts in one step (on-policy)."""
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float = Field(0.1, gt=0)
    warmup_steps: int = Field(0, ge=0)
    """Optimizer steps over which the learning rate rises from 0; constant afterwards."""
    kl_stop: KlStop = KlStop()
    """A minibatch over the limit makes no step, and ends the update."""
    tokens_per_pack: int = Field(2048, ge=1)
    """Positions of one packed forward pass; a longer rollout gets a pass of its own."""
    logprob_chunk: int = Field(1024, ge=1)
    """Policy tokens whose logits exist at one time."""
    fold_adapter: bool = False
    """Add W + s BA up once per forward pass: fewer operations, but gradients as large as W. For small models."""
    activation_checkpointing: bool = False
    """Keep each layer's input only and compute it again for its gradient: a third more work, for long context."""
    distributed: DistributedConfig = DistributedConfig()
    shuffle: bool = True
    max_engine_mismatch: Annotated[float, UNVERSIONED] = Field(1e-2, gt=0)
    """A mean |engine - learner| log-prob over this is warned of: the engine samples from something else."""

    @model_validator(mode="after")
    def _on_policy_is_one_step(self) -> "UpdateConfig":
        if self.minibatch is None and self.epochs != 1:
            raise ValueError("minibatch: null means strictly on-policy, so epochs must be 1")
        return self
