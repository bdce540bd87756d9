"""The documents of a comparison of models or registered versions."""

from typing import Literal

from pydantic import Field

from tasks.core.records.documents import Count, Document, Percent, Positive, Share
from tasks.core.records.scores import Behaviour, MetricScore, RunsScore

ALL_LEVELS = "all"
"""The level of figures over all difficulties; the other levels are "1", "2", "3"."""


class LevelScore(Document):
    """TGC and SGC of one model on the tasks of one difficulty of one split, or on all of them."""

    tasks: Count
    scenarios: Count
    tgc: Percent
    tgc_se: Positive | None
    sgc: Percent
    sgc_se: Positive | None


class SplitScores(Document):
    """The scores of one model on one split."""

    rollouts_per_task: Count
    levels: dict[str, LevelScore]
    """By difficulty, and under "all"."""
    per_k: dict[str, RunsScore] = Field(default_factory=dict)
    """pass^k and best@k, by k from 1 to `rollouts_per_task`."""
    behaviour: Behaviour | None
    """None for dev, where it is not measured."""
    own: MetricScore | None = None
    """The score by the world's own metric, if known."""


class ComparedModel(Document):
    """A scored model, or a registered version."""

    name: str
    facts: dict[str, str]
    """Facts that a table shows beside its scores."""
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

    first: str
    second: str
    split: str
    level: str
    metric: Literal["tgc", "sgc"]


class SeedSpread(Document):
    """A figure over training seeds: a standard error says nothing of where another run would land."""

    split: str
    metric: Literal["tgc", "sgc"]
    mean: Percent
    deviation: Positive
    """Sample standard deviation."""


class Comparison(Document):
    """comparison.json: models or versions that were scored, and the difference of each pair."""

    title: str
    confidence: float = Field(gt=0, lt=1)
    """Confidence of the intervals."""
    models: tuple[ComparedModel, ...] = Field(min_length=1)
    differences: tuple[Difference, ...]
    over_seeds: tuple[SeedSpread, ...]
    """Empty unless the models differ in their training seed alone."""
    scored_differently: dict[str, dict[str, str]]
    """Parameters that affect the meaning of a score and differ: if there are any, the scores do not compare."""
