"""The `update` section of params.yaml: loss, optimizer and batching of one LOOP update."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from tasks.core.config.section import Section

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
    """How a unit's weight comes from its tokens'. Both are the same for `token`. product: clipped by the mean of its
    tokens' advantages. geometric_mean: with `trajectory` GSPO's sequence weight; each token is clipped by its own
    advantage (GSPO-token), which differ where turns have advantages. The weight pi_old / pi_behaviour is the product
    with both."""
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
    bfloat16, a quantised model or cache), say when `update_policy` warns that their log-probs differ; off where both
    agree, as the embedded policy's engine and learner do: the weights are then 1 up to rounding."""
    kl_coefficient: float = Field(0.0, ge=0)
    """Weight of the penalty KL(policy || base policy). 0: no reference forward pass is made."""
    kl_gradient: Literal["k3", "unbiased", "returns"] = "k3"
    """How the penalty's gradient is estimated. k3: differentiate the k3 estimate of each token itself (GRPO, eq. 4).
    Its gradient is that of KL(base || policy) of each token, which pulls the policy towards everything that the base
    does. unbiased: weight each token's k3 estimate by pi / pi_old; the gradient is that of KL(policy || base) of each
    token, given the tokens before it (TRL: `use_bias_correction_kl`). returns: subtract from a unit's advantage the
    estimates log pi_old - log base of its tokens and all later ones of the rollout (REINFORCE++; verl:
    `use_kl_in_reward`); the gradient is that of KL(policy || base) of whole rollouts, which counts what a token does
    to later ones."""
    entropy_coefficient: float = Field(0.0, ge=0)
    """Weight of the entropy bonus."""


class PreferenceConfig(Section):
    """Direct preference optimisation over pairs of rollouts (`update.objective: preference`)."""

    gamma: float | None = Field(None, gt=0, le=1)
    """Discount of turns in DMPO, null for DPO. Turn t of T, the first being 0, counts gamma^t (1 - gamma^(T - t)) / (1
    - gamma^T); at 1 its limit (T - t) / T. That is what the paper (arXiv 2406.14868) derives and its code computes,
    with 0.7; its eq. 16 as printed lacks gamma^t. null: every turn counts 1, plain DPO (arXiv 2305.18290)."""

    beta: float = Field(0.1, gt=0)
    """Inverse scale of the implied reward, in nats. The larger, the nearer the policy stays to its reference."""
    reference: PreferenceReference = "iteration"
    """The reference policy. iteration: the policy at the start of the iteration (DMPO as in the LOOP paper); base: the
    base policy."""


class CriticConfig(Section):
    """A learned critic: PPO's baseline in place of the group's (the LOOP paper's PPO row; StarPO)."""

    constants: ClassVar[Mapping[str, str]] = {
        "max_grad_norm": "1.0",
        "loss_coefficient": "0.1",
        "final_loss_coefficient": "0.001",
    }

    credit: Literal["token", "turn", "bilevel"] = "token"
    """Step of generalised advantage estimation. A token; a turn, whose tokens share its advantage; or turns first and
    then the tokens inside each (RAGEN's bi-level GAE)."""
    rewards: Literal["return", "turns"] = "return"
    """Rewards that the critic sees. return: the episode's return, after its last turn. turns: what the world gives for
    each turn, in its own unit (RAGEN's worlds do); `value_range` then has to hold that unit, or be null."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount from one token to the next. Of `token` and `bilevel`."""
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
    decay_iterations: int = Field(80, ge=1)
    """Iterations over which the weight of the critic's loss falls. From 0.1 to 0.001, by equal factors, after the
    warm-up."""
    warmup_iterations: int = Field(10, ge=0)
    """Iterations in which the critic trains alone."""


class DistributedConfig(Section):
    """The processes of one update. Torch's elastic launcher starts those of one machine, as `torchrun` does, and Ray
    those of several."""

    constants: ClassVar[Mapping[str, str]] = {"timeout_s": "1800"}

    ranks: int = Field(1, ge=1)
    """Processes on each machine, one per GPU. Part of the recipe: another number adds gradients in another order."""
    nodes: int = Field(1, ge=1)
    """Machines of one update: the pipeline's, and others of the cluster at `machines.ray.address`, which need no folder
    of the project."""
    sharding: Literal["fsdp", "replicated"] = "fsdp"
    """Part that each rank holds. fsdp: a share of weights, gradients and optimizer (FSDP2); replicated: all of them."""

    @property
    def size(self) -> int:
        """Ranks in all."""
        return self.ranks * self.nodes


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
    constants: ClassVar[Mapping[str, str]] = {"max_engine_mismatch": "null, what rounding in the dtype explains"}

    objective: ObjectiveName = "clipped"
    """Objective that is maximised. clipped: the clipped policy gradient. supervised: the rollouts' log-likelihood,
    weighted by their advantages, without importance weights and their clip range. preference: that the better rollout
    of a pair is the likelier one, more than for the reference; it takes nothing from `loss`."""
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
    """Tokens of one packed forward pass. A longer rollout gets a pass of its own. A longer pair goes in several passes,
    and so does a longer rollout with dropped thoughts, which is several sequences."""
    share_prefixes: bool = False
    """Compute a prompt once for all rollouts of a pack that begin with it. Equal gradients up to rounding, in less time
    where prompts are long and `minibatch` holds several rollouts of a task."""
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
        if self.loss.average != "rollout":
            raise ValueError(
                f"objective: preference is a mean over pairs, not over tokens as loss.average: {self.loss.average} "
                "would have it; set loss.average: rollout"
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


def value_head_widths(width: int) -> tuple[int, int]:
    """Return the widths of a critic's two hidden layers for a hidden size: the paper's 5120-3072-2048-1 for 32B."""
    return max(1, round(width * 3072 / 5120)), max(1, round(width * 2048 / 5120))
