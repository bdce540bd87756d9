"""The collapse monitor's records: an iteration's figures, its warnings, and the next iteration's course.

A course may end the training: see `require_going_on`.
"""

from collections.abc import Iterable

from pydantic import Field

from tasks.core.config.dag import iteration_key, iteration_number
from tasks.core.records.documents import Count, Document, Positive, Share, read_document, write_document
from tasks.core.records.layout import Layout
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


class Course(Document):
    """courses/iNNN.json: how the next iteration's stages respond to warnings.

    Neutral unless `monitor.action` is set.
    """

    stop: str | None = None
    """Why no further iteration is played."""
    learning_rate_factor: float = Field(1.0, gt=0, le=1)
    variance_share: float = Field(1.0, gt=0, le=1)
    """The smaller of this and advantages.top_variance_share applies."""
    discard_above: dict[str, float] = Field(default_factory=dict)
    """Figures of an update with the limits above which the update is discarded."""


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


class TrainingStopped(ValueError):  # noqa: N818 - says what happened to the run
    """The collapse monitor stopped the training; everything trained until then is kept."""


def write_neutral(layout: Layout, keys: Iterable[str] = (iteration_key(0),)) -> None:
    """Write neutral (no-op) courses for these iterations; by default that with which the first iteration starts."""
    for key in keys:
        write_document(layout.course(key), Course())


def require_going_on(layout: Layout, key: str) -> Course:
    """Return the course after iteration `key`.

    Raises TrainingStopped if it says stop, ArtifactError if it is missing.
    """
    course = read_document(layout.course(key), Course)
    if course.stop is not None:
        raise TrainingStopped(
            f"training stopped after {key} (monitor.action: stop): {course.stop}. To score what was trained: "
            f"loopline configure --refresh --set iterations={iteration_number(key)}; to continue, set "
            "monitor.action to none"
        )
    return course
