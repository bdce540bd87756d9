"""The collapse monitor's figures of an iteration, its warnings, and the course of the next iteration."""

from pydantic import Field

from tasks.core.records.documents import Count, Document, Positive, Share
from tasks.core.records.training import Metrics


class WatchedStats(Document):
    """One iteration in the figures that rules are about; null where there is none, say of an update without a batch."""

    mean_return: Share
    group_return_std: Positive
    entropy: float | None
    kl_per_token: float | None
    """KL of the update (as metrics.json has it: before its last step, so 0 of an update of one step) by the tokens of a
    response."""
    grad_norm: Positive | None
    length: Positive | None
    repetition: Share | None
    distinct: Share | None
    information: float | None
    """Share of the most that responses could say of their prompts."""
    mismatch: Share | None
    """Share of policy tokens on which engine and learner differ by more than rounding explains; null where an older
    policy sampled, from which the learner's is to differ."""


class CollapseWarning(Document):
    """A rule that came to be broken in an iteration, having held before it."""

    rule: str
    iteration: Count
    evidence: str
    """A sentence with the figure, its value and the limit."""


class Course(Document):
    """courses/iNNN.json: what the stages of the next iteration do about warnings so far. Nothing but for
    `monitor.action`."""

    stop: str | None = None
    """Why no further iteration is played."""
    learning_rate_factor: float = Field(1.0, gt=0, le=1)
    variance_share: float = Field(1.0, gt=0, le=1)
    """The smaller of this and advantages.top_variance_share counts."""
    discard_above: dict[str, float] = Field(default_factory=dict)
    """Figures of an update, and the limits over which it is not kept."""


def watched(metrics: Metrics) -> WatchedStats:
    """Figures of an iteration that the rules look at."""
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
