"""Documents of training: warm start, preflight, advantages, the update, and the collapse monitor's.

Units are those of documents.py.
"""

from typing import Literal

from tasks.core.records.documents import Count, Document, OnlyWhereGiven, Positive, Share

Passes = Literal["packed", "single", "single_eager"]
"""How the learner's forward passes take rollouts: side by side in packs; one to a pass; or one to a pass, with the
eager attention of the model's own file."""


class EngineMismatch(Document):
    """|engine log-prob - learner log-prob| over the policy tokens of one iteration."""

    mean: Positive
    max: Positive
    noise: Positive
    """Limit of what rounding can do to one token in the policy's dtype."""
    share_over_noise: Share
    """Share of policy tokens whose difference is over it."""


class WarmStartRecord(Document):
    """warm_start.json: the supervised training of the base model."""

    losses: tuple[float, ...]
    """Loss of every optimizer step, in nats per policy token; none where the base model is used as it is."""


class Preflight(Document):
    """preflight.json: what was tried before the first rollout, and fits. Nothing measured: collection waits on it."""

    positions: Count
    """Positions of one forward and backward pass; 0 when the run trains nothing."""
    rollouts: Count
    ranks: Count
    passes: Passes | None
    """The fastest way in which the learner computes the model's own function; null when the run trains nothing."""


class ResponseStats(Document):
    """Figures of the text of an iteration's finished rollouts (tasks/filter_advantages.py)."""

    length: Positive
    """Tokens that the policy sampled in one rollout, mean."""
    repetition: Share
    """Share of a rollout's 4-grams that were in it before, mean over the rollouts."""
    distinct: Share
    """Different responses among one task's rollouts / rollouts, mean over the tasks with at least two."""


class PromptInformation(Document):
    """Mutual information of first turns and their prompts (tasks/core/learner/prompt_information.py), over the
    batch that trains: what the filter dropped is not in it."""

    nats: float
    """Estimate of their mutual information; from a sample, so it can be below 0."""
    share: float
    """Share of the most that can be: the logarithm of the number of prompts."""
    prompts: Count
    responses: Count


class AdvantageSummary(Document):
    """advantages.json: what one iteration's rollouts looked like, and how many of them train.

    Figures are left out where they mean nothing: those of the filter with searched trees, those of pairs without,
    and all of them in preflight, where no policy plays.
    """

    mean_return: Share
    group_return_std: Positive
    """Mean over the tasks of the standard deviation of the returns within one task's rollouts."""
    rollouts: Count
    finished_rollouts: Count
    kept_rollouts: Count
    end_reasons: dict[str, Count]
    """Rollouts by `end_reason`."""
    responses: ResponseStats | None = None
    """null in preflight, where no policy plays."""
    note: str | None = None
    """A remark for a person, say that every advantage was zero."""
    success_rate: OnlyWhereGiven[Share] = None
    groups: OnlyWhereGiven[Count] = None
    """Tasks whose rollouts were compared with each other."""
    mixed_groups: OnlyWhereGiven[Share] = None
    """Share of the groups whose returns vary."""
    left_out_groups: OnlyWhereGiven[Count] = None
    """Tasks with too few finished rollouts to compare."""
    lost_rollouts: OnlyWhereGiven[Count] = None
    """Rollouts that world errors took."""
    shrunk_groups: OnlyWhereGiven[Count] = None
    """Tasks that lost some of them."""
    dropped_low_variance_group: OnlyWhereGiven[Count] = None
    """Rollouts that the filter of groups dropped."""
    dropped_small_advantage: OnlyWhereGiven[Count] = None
    dropped_without_tokens: OnlyWhereGiven[Count] = None
    """Rollouts that the policy sampled nothing of."""
    dropped_lone_rollouts: OnlyWhereGiven[Count] = None
    """Rollouts that have none of their task beside them."""
    compared_turns: OnlyWhereGiven[Count] = None
    """Pairs of turns of the searched trees."""
    pairs: OnlyWhereGiven[Count] = None
    """Those that train."""
    widest_gap: OnlyWhereGiven[Positive] = None
    """Largest difference of Q."""


CURVE_FIGURES = (
    "mean_return",
    "group_return_std",
    "entropy",
    "kl",
    "grad_norm",
    "clip_fraction",
    "kept_rollouts",
    "lost_rollouts",
    "shrunk_groups",
)
"""Figures of metrics.json that make the tables of curves."""


class Metrics(Document):
    """metrics.json: one policy update. The figures of the update are null when nothing trained (see `note`)."""

    mean_return: Share
    group_return_std: Positive
    kept_rollouts: Count
    lost_rollouts: OnlyWhereGiven[Count] = None
    """Rollouts that world errors took; left out in preflight, where no policy plays, as is `shrunk_groups`."""
    shrunk_groups: OnlyWhereGiven[Count] = None
    """Tasks that lost some of them."""
    responses: ResponseStats | None = None
    """null in preflight, where no policy plays."""
    prompt_information: PromptInformation | None = None
    """Estimate for the policy before the update, like the entropy; null where it was not measured."""
    entropy: float | None
    """Mean over the policy tokens, in nats."""
    kl: float | None
    """k3 estimate of KL(policy before || policy now) at the last minibatch, whatever `update.kl_stop` takes. Before
    that one's step: 0 where an update is one step."""
    grad_norm: Positive | None
    """Mean over the optimizer steps, before clipping."""
    largest_grad_norm: Positive | None
    clip_fraction: Share | None
    loss: float | None
    """Mean over the optimizer steps."""
    value_loss: Positive | None = None
    """Half the mean squared error of the critic, mean over the optimizer steps; null without one."""
    engine_mismatch: EngineMismatch | None
    staleness: Count | None = None
    """Updates between the policy that sampled the rollouts and the one that was updated."""
    behaviour_kl: float | None = None
    """Estimate of KL(policy that sampled || policy before the update), mean over the rollouts; this and the two below
    are null where the loss was not weighted by pi_old / pi_behaviour."""
    behaviour_weight: Positive | None = None
    """Mean over the importance units."""
    capped_behaviour_weights: Share | None = None
    """Share of the importance units whose weight is at the cap."""
    optimizer_steps: Count
    planned_optimizer_steps: Count
    total_optimizer_steps: Count | None = None
    """Since the base policy."""
    stopped_early: bool
    """Whether `update.kl_stop` ended the update before all planned steps."""
    note: str | None = None


class UpdateTimings(Document):
    """update_timings.json: the wall-clock figures of one update; null when nothing trained."""

    tokens_per_s: Positive | None = None
    """Tokens that the learner passed forward and backward per second of wall clock."""
    update_s: Positive | None = None


class WatchedStats(Document):
    """The figures of one iteration that rules check; null if undefined, as for an update without a batch."""

    mean_return: Share
    group_return_std: Positive
    entropy: float | None
    kl_per_token: float | None
    """KL of the update (as in metrics.json: before its last step, so 0 for an update of one step) divided by the tokens
    of a response."""
    grad_norm: Positive | None
    length: Positive | None
    repetition: Share | None
    distinct: Share | None
    information: float | None
    """Share of the most that responses could reveal about their prompts."""
    mismatch: Share | None
    """Share of policy tokens on which engine and learner differ by more than rounding; null if an older policy sampled,
    because then the learner's should differ."""


class CollapseWarning(Document):
    """A rule that is broken in this iteration and held before it."""

    rule: str
    iteration: Count
    evidence: str
    """A sentence with the figure, its value and the limit."""


def watched(metrics: Metrics) -> WatchedStats:
    """Return the figures of an iteration that the rules check."""
    responses, information, mismatch = metrics.responses, metrics.prompt_information, metrics.engine_mismatch
    length = None if responses is None else responses.length
    return WatchedStats(
        mean_return=metrics.mean_return,
        group_return_std=metrics.group_return_std,
        entropy=metrics.entropy,
        kl_per_token=metrics.kl / length if length and metrics.kl is not None else None,
        grad_norm=metrics.grad_norm,
        length=length,
        repetition=None if responses is None else responses.repetition,
        distinct=None if responses is None else responses.distinct,
        information=None if information is None else information.share,
        mismatch=None if mismatch is None or metrics.staleness else mismatch.share_over_noise,
    )
