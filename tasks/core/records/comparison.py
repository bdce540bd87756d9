"""The documents of a comparison of models or registered versions, and of a study: methods times training seeds."""

from typing import Literal

from pydantic import Field

from tasks.core.records.documents import Count, Document, IterationKey, Percent, Positive, Share
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


NO_FINE_TUNING = "nft"
"""The row of the base policy, which every run scores along with its own policy."""


class StudyRun(Document):
    """A method trained to the end with one seed."""

    method: str
    seed: int
    command: str
    """The command that recreates its params.yaml."""
    trained: bool = True
    """False: the row of its method is about the run's base policy."""
    selected: IterationKey
    rollouts: Count
    """Training rollouts played, including void rollouts."""
    optimizer_steps: Count
    dev_tgc: tuple[tuple[Count, Percent], ...]
    """By iteration that was evaluated."""
    solved: dict[str, dict[str, tuple[str, ...]]]
    """By test split and policy, a text for each evaluation run: 1 or 0 for each of the study's tasks."""


class Study(Document):
    """Everything that the tables and the page of a study show. Kept in git, it is what they can be made from again."""

    name: str
    against: str
    confidence: float = Field(gt=0, lt=1)
    orderings: tuple[tuple[str, ...], ...] = ()
    git_commit: str
    tasks: dict[str, str]
    """By test split, SCENARIO/TASK of each task, with blanks between."""
    runs: tuple[StudyRun, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()
    """Notes that a reader must know: runs that are missing, other code, other conditions."""
