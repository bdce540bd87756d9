"""The `update` section of params.yaml: loss, optimizer and batching of one LOOP update."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from tasks.core.config.section import UNVERSIONED, Section

ObjectiveName = Literal["clipped", "supervised", "preference"]
PreferenceReference = Literal["iteration", "base"]
PAIRED = frozenset[ObjectiveName]({"preference"})
"""Objectives that are made of pairs of rollouts; a pair lies in one pack."""
WEIGHTED = frozenset[ObjectiveName]({"clipped"})
"""Objectives with importance weights: they correct for the policy that sampled, and need its log-probs."""


class LossConfig(Section):
    """The clipped policy-gradient loss (LOOP eq. 6 to 8)."""

    importance: Literal["token", "turn", "trajectory"] = "token"
    """Unit of an importance weight. Each token, each assistant turn, or the whole rollout."""
    unit_weight: Literal["product", "geometric_mean"] = "product"
    """How a unit's weight comes from its tokens'. product: clipped by the mean of its tokens' advantages.
    geometric_mean: with `trajectory` GSPO's sequence weight; each token is clipped by its own advantage (GSPO-token),
    which differ where turns have advantages. The weight pi_old / pi_behaviour is the product with both."""
    average: Literal["rollout", "token", "constant"] = "rollout"
    """Units that count alike in a minibatch's loss. rollout: a mean over each rollout's units, then over rollouts
    (LOOP). token: policy tokens; a mean over all of the minibatch (DAPO, CANOPY). constant: policy tokens; a sum over
    each rollout's by `constant_tokens`, whatever its length, then a mean over the rollouts (Dr. GRPO)."""
    constant_tokens: int = Field(512, ge=1)
    """Divisor of a rollout's sum where `average` is constant. About as many policy tokens as a rollout may have."""
    clip_epsilon: float = Field(0.1, gt=0, lt=1)
    """Clip range of the importance weight, to 1 + this."""
    clip_epsilon_high: float | None = Field(None, gt=0)
    """Another upper bound, 1 + this (clip-higher). null: as `clip_epsilon`."""
    lower_bound: Literal["reciprocal", "symmetric"] = "reciprocal"
    """Lower bound of the importance weight. reciprocal: 1 / (1 + eps). symmetric: 1 - eps."""
    max_behaviour_weight: float = Field(2.0, gt=0)
    """Cap of the weight pi_old / pi_behaviour. Truncated importance sampling, with pi_behaviour as the engine reported
    it. It corrects stale rollouts (`collection.staleness` above 0), and engines if `correct_engine_mismatch`."""
    correct_engine_mismatch: bool = False
    """Weight fresh rollouts by it as well. For an engine that does not compute as the learner does (vLLM's kernels in
    bfloat16, a quantised model or cache), say when `update_policy` warns of `max_engine_mismatch`; off where both
    agree, as the embedded policy's engine and learner do: the weights are then 1 up to rounding."""
    kl_coefficient: float = Field(0.0, ge=0)
    """Weight of the penalty KL(policy || base policy), estimated by k3. 0: no reference forward pass is made."""
    kl_gradient: Literal["k3", "unbiased"] = "k3"
    """How the penalty's gradient is estimated. The penalty's gradient. k3: that of the estimate as it stands (GRPO, eq.
    4), which is the gradient of KL(base || policy) and not of the value above: the policy is drawn over all that the
    base does. unbiased: each token's estimate is weighted by pi / pi_old, by which the gradient is that of KL(policy ||
    base) (TRL: `use_bias_correction_kl`)."""
    entropy_coefficient: float = Field(0.0, ge=0)
    """Weight of the entropy bonus."""


class PreferenceConfig(Section):
    """Direct preference optimisation over pairs of rollouts (`update.objective: preference`)."""

    gamma: float | None = Field(None, gt=0, le=1)
    """Discount of turns in DMPO, null for DPO. Turn t of T, the first being 0, counts (1 - gamma^(T - t)) / (1 -
    gamma^T) (arXiv 2406.14868, eq. 16); at 1 its limit (T - t) / T. The authors' code has 0.7, and multiplies by
    gamma^t, which the equation does not. null: every turn counts 1, plain DPO (arXiv 2305.18290)."""

    beta: float = Field(0.1, gt=0)
    """Inverse scale of the implied reward, in nats. The larger, the nearer the policy stays to its reference."""
    reference: PreferenceReference = "iteration"
    """Policy that it is compared with. The policy as it was when the iteration began (DMPO as in the LOOP paper), or
    the base policy."""


class CriticConfig(Section):
    """A learned critic: PPO's baseline in place of the group's (the LOOP paper's PPO row; StarPO)."""

    credit: Literal["token", "turn", "bilevel"] = "token"
    """Step of generalised advantage estimation. A token; a turn, whose tokens share its advantage; or turns first and
    then the tokens inside each (RAGEN's bi-level GAE)."""
    rewards: Literal["return", "turns"] = "return"
    """Rewards that the critic sees. return: the episode's return, after its last turn. turns: what the world gives for
    each turn, in its own unit (RAGEN's worlds do); `value_range` then has to hold that unit, or be null."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount from one token to the next."""
    turn_gamma: float = Field(1.0, gt=0, le=1)
    """Discount from one turn to the next. Of `turn` and `bilevel` (RAGEN: 0.95)."""
    gae_lambda: float = Field(1.0, ge=0, le=1)
    """Lambda of generalised advantage estimation. 1: returns minus values; 0: one-step errors."""
    whiten_advantages: bool = False
    """Normalise advantages over the batch's policy tokens. Their mean is subtracted and their standard deviation
    divides, over all rollouts that train, as verl's estimator and RAGEN's bi-level one always do. The critic's targets
    do not change."""
    value_range: tuple[float, float] | None = (0.0, 1.0)
    """Range to which values are clipped. Where advantages are estimated: the range of a return."""
    learning_rate: float = Field(1e-3, gt=0)
    """Learning rate of the critic."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Norm to which the critic's gradient is clipped."""
    loss_coefficient: float = Field(0.1, gt=0)
    """Weight of the critic's loss at first."""
    final_loss_coefficient: float = Field(0.001, gt=0)
    """Weight of the critic's loss in the end."""
    decay_iterations: int = Field(80, ge=1)
    """Iterations over which that weight falls. By equal factors, after the warm-up."""
    warmup_iterations: int = Field(10, ge=0)
    """Iterations in which the critic trains alone."""


class DistributedConfig(Section):
    """The processes of one update; more than one are started by torch's elastic launcher, as `torchrun` does."""

    ranks: int = Field(1, ge=1)
    """Processes on each machine, one per GPU."""
    nodes: int = Field(1, ge=1)
    """Machines of one update. `update_policy` logs the command that the others run; they share the project's folder."""
    rendezvous: Annotated[str | None, UNVERSIONED] = Field(None, pattern=r"^\S+:\d+$")
    """HOST:PORT of the machine that runs the pipeline. There the others find it; needed when nodes > 1."""
    sharding: Literal["fsdp", "replicated"] = "fsdp"
    """Part that each rank holds. fsdp: a share of weights, gradients and optimizer (FSDP2); replicated: all."""
    timeout_s: Annotated[float, UNVERSIONED] = Field(1800.0, gt=0)
    """Longest wait of one rank for the others, in seconds. Then it fails, and the update with it."""

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
    """The rule that ends an update before its last minibatch: the policy is too far from the one before the update."""

    estimator: Literal["k1", "k3"] = "k1"
    """How the distance is estimated. Estimate of KL(policy before || policy now); x = log pi - log pi_before of a
    sampled token. k1: -x, and the absolute value of its mean counts, as in LOOP's code. k3: e^x - 1 - x, to which one
    token of x = 6.5 in 32 rollouts adds 20. Sums over a rollout's tokens, mean over the minibatch's rollouts."""
    limit: float = Field(20.0, gt=0)
    """Largest KL of a minibatch's rollouts, in nats. LOOP's code: 20."""


class UpdateConfig(Section):
    """One policy update. The paper: AdamW, 5e-5, gradient norm 1, minibatch 32, 2 epochs."""

    renamed: ClassVar = {"warmup_updates": "warmup_steps", "max_kl": "kl_stop.limit"}

    objective: ObjectiveName = "clipped"
    """Objective that is maximised. clipped: the clipped policy gradient. supervised: the rollouts' log-likelihood,
    weighted by their advantages. preference: that the better rollout of a pair is the likelier one, more than for the
    reference."""
    loss: LossConfig = LossConfig()
    """Clipped policy-gradient loss, equations 6 to 8 of LOOP."""
    preference: PreferenceConfig = PreferenceConfig()
    """Preference of one rollout of a pair over the other."""
    critic: CriticConfig | None = None
    """A critic that is trained with the policy, in place of a group's baseline. It needs advantages.estimator:
    episode_return."""
    epochs: int = Field(2, ge=1)
    """Passes over the iteration's rollouts."""
    minibatch: int | None = Field(32, ge=1)
    """Rollouts per optimizer step. It is the constant divisor of the loss. null: all rollouts in one step
    (on-policy)."""
    learning_rate: float = Field(1e-3, gt=0)
    """Learning rate of AdamW."""
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay of AdamW."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Betas of AdamW."""
    max_grad_norm: float = Field(0.1, gt=0)
    """Norm to which the gradient is clipped."""
    warmup_steps: int = Field(0, ge=0)
    """Optimizer steps over which the learning rate rises from 0. It is constant afterwards."""
    kl_stop: KlStop = KlStop()
    """A minibatch too far from the policy before ends the update, without a step."""
    tokens_per_pack: int = Field(2048, ge=1)
    """Tokens of one packed forward pass. A longer rollout gets a pass of its own."""
    logprob_chunk: int = Field(1024, ge=1)
    """Policy tokens whose logits exist at one time."""
    fold_adapter: bool = False
    """Add the adapter to the weights once per forward pass. Fewer operations, but gradients as large as the weights:
    for small models."""
    activation_checkpointing: bool = False
    """Compute activations again for the gradient, to save memory. A third more work, for long context."""
    distributed: DistributedConfig = DistributedConfig()
    """Processes of one update."""
    shuffle: bool = True
    """Draw minibatches anew in every epoch."""
    max_engine_mismatch: Annotated[float | None, UNVERSIONED] = Field(None, gt=0)
    """Warn where engine and learner differ by more, in nats. The mean over a batch of |engine - learner| log-prob: over
    it, the engine samples from something else. null: what rounding cannot explain, 1e-3 in float32 and 0.1 in bfloat16
    (core/learner/engine_noise.py)."""

    @property
    def needs_reference(self) -> bool:
        """Whether an update needs the base policy's log-probs."""
        return needs_reference(self.loss.kl_coefficient > 0, self.objective, self.preference.reference)

    @model_validator(mode="after")
    def _a_preference_is_between_whole_rollouts(self) -> "UpdateConfig":
        if self.objective != "preference":
            return self
        if self.loss.kl_coefficient or self.loss.entropy_coefficient:
            raise ValueError("objective: preference uses no kl_coefficient and no entropy_coefficient; set both to 0")
        if self.critic is not None:
            raise ValueError("objective: preference trains on pairs, not on a critic's advantages; set critic: null")
        if self.loss.average == "token":
            raise ValueError(
                "objective: preference is a mean over pairs, which loss.average: token would divide by their tokens; "
                "set loss.average: rollout"
            )
        return self

    @model_validator(mode="after")
    def _a_mismatch_is_corrected_by_weights(self) -> "UpdateConfig":
        if self.loss.correct_engine_mismatch and self.objective not in WEIGHTED:
            raise ValueError(
                f"loss.correct_engine_mismatch corrects the weights of objective: clipped; with {self.objective} set "
                "it to false"
            )
        return self

    @model_validator(mode="after")
    def _on_policy_is_one_step(self) -> "UpdateConfig":
        if self.minibatch is None and self.epochs != 1:
            raise ValueError("minibatch: null means strictly on-policy, so epochs must be 1")
        return self


def needs_reference(kl_penalty: bool, objective: ObjectiveName, reference: PreferenceReference) -> bool:
    """Return whether an update with these settings also passes its batch through the base policy."""
    return kl_penalty or (objective == "preference" and reference == "base")
