"""The document of a comparison of model versions: data/comparisons/<name>.json."""

from typing import Literal

from pydantic import Field, JsonValue

from tasks.core.records.documents import Count, Digest, Document, IterationKey, Percent, Positive, Share
from tasks.core.records.scores import Behaviour, MetricScore

ALL_LEVELS = "all"
"""The level of a figure over all difficulties; the others are "1", "2", "3"."""


class LevelScore(Document):
    """TGC and SGC of one version on the tasks of one difficulty of one split, or on all of them."""

    tasks: Count
    scenarios: Count
    tgc: Percent
    tgc_se: Positive | None
    sgc: Percent
    sgc_se: Positive | None


class SplitScores(Document):
    """One version on one split."""

    rollouts_per_task: Count
    levels: dict[str, LevelScore]
    """By difficulty, and under "all"."""
    behaviour: Behaviour | None
    """None for dev, where it is not measured."""
    own: MetricScore | None = None
    """By the world's own metric, where that is known."""


class ComparedVersion(Document):
    """A model version: what it was made from and how it scored."""

    version: Count
    aliases: tuple[str, ...]
    iteration: IterationKey
    adapter_digest: Digest
    pipeline_digest: str
    params_digest: str
    git_commit: str
    git_dirty: bool
    splits: dict[str, SplitScores]


class TestedDifference(Document):
    """A difference in percentage points with its test: `tasks.core.evaluation.differences.PairedTest`."""

    difference: float
    standard_error: Positive | None
    low: float | None
    high: float | None
    p_value: Share | None
    pairs: Count
    scenarios: Count


class Difference(TestedDifference):
    """`second` minus `first`: paired by task (SGC: by scenario), clustered by scenario."""

    first: Count
    second: Count
    split: str
    level: str
    metric: Literal["tgc", "sgc"]


class Comparison(Document):
    """Model versions beside each other."""

    registered_model: str
    rescored: bool
    """Whether the versions were played anew for this comparison; else the scores stored with them were read."""
    confidence: float = Field(gt=0, lt=1)
    """Confidence of the intervals."""
    versions: tuple[ComparedVersion, ...] = Field(min_length=1)
    differences: tuple[Difference, ...]
    scored_differently: dict[str, dict[str, str]] = Field({})
    """Those of `params` that decide what a score means, where stored scores were taken under different ones: then the
    differences are between unlike things."""
    params: dict[str, dict[str, JsonValue]]
    """Parameters that are not the same in all versions: {dotted name: {version: value}}."""
