"""The document of a comparison of model versions: data/comparisons/<name>.json."""

from typing import Literal

from pydantic import Field, JsonValue

from tasks.core.records.documents import Count, Digest, Document, IterationKey, Percent, Positive, Share
from tasks.core.records.scores import Behaviour, MetricScore, RunsScore

ALL_LEVELS = "all"
"""The level of figures over all difficulties; the other levels are "1", "2", "3"."""


class LevelScore(Document):
    """TGC and SGC of one version on the tasks of one difficulty of one split, or on all of them."""

    tasks: Count
    scenarios: Count
    tgc: Percent
    tgc_se: Positive | None
    sgc: Percent
    sgc_se: Positive | None


class SplitScores(Document):
    """The scores of one version on one split."""

    rollouts_per_task: Count
    levels: dict[str, LevelScore]
    """By difficulty, and under "all"."""
    per_k: dict[str, RunsScore] = Field(default_factory=dict)
    """pass^k and best@k, by k from 1 to `rollouts_per_task`."""
    behaviour: Behaviour | None
    """None for dev, where it is not measured."""
    own: MetricScore | None = None
    """The score by the world's own metric, if known."""


class ComparedVersion(Document):
    """A model version: what it was made from and how it scored."""

    version: Count
    aliases: tuple[str, ...]
    iteration: IterationKey
    adapter_digest: Digest
    pipeline_digest: str
    params_digest: str
    git_commit: str
    git_dirty: bool | None
    """None: git did not say."""
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
    """A comparison of model versions."""

    registered_model: str
    rescored: bool
    """Whether the versions were played again for this comparison; otherwise their stored scores were used."""
    confidence: float = Field(gt=0, lt=1)
    """Confidence of the intervals."""
    versions: tuple[ComparedVersion, ...] = Field(min_length=1)
    differences: tuple[Difference, ...]
    scored_differently: dict[str, dict[str, str]] = Field({})
    """Parameters that affect the meaning of a score and differ between versions with stored scores. If there are any,
    the differences compare unlike things."""
    params: dict[str, dict[str, JsonValue]]
    """Parameters that differ between versions: {dotted name: {version: value}}."""
