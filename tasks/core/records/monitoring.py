"""The collapse monitor's records: an iteration's figures, and its warnings."""

from tasks.core.records.documents import Count, Document, Positive, Share
from tasks.core.records.training import Metrics


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
