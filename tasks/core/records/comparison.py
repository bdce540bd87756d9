"""The documents of a model's score, of a comparison of models or versions, and of a study (methods times seeds)."""

from typing import Literal

from pydantic import Field

from tasks.core.records.documents import Count, Digest, Document, IterationKey, Percent, Positive, Share
from tasks.core.records.scores import Behaviour, EpisodeLimits, MetricScore, RunsScore
from tasks.core.records.timings import ApiUsage

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


ModelKind = Literal["model", "adapter", "weights", "version", "api"]
"""A model with its tokenizer, an adapter on one, whole weights beside one, a registered version of either, a server."""


class ScoreLineage(Document):
    """The things that a score was made from, by their digests."""

    code: str = Field(pattern=r"^[0-9a-f]{16}$")
    """First digits of a SHA-256 over the files of code that played: the version of the stage `score`."""
    params: Digest
    """Digest of all parameters, which lie beside this document as params.yaml."""
    world: Digest
    """Digest of the folder with the world's tasks."""
    base: Digest
    """Digest of the base model's folder; for a server, of the one whose tokenizer records the turns."""
    weights: Digest | None
    """Digest of the checkpoint that was played; None for a server, whose weights nobody here has seen."""
    git_commit: str
    git_dirty: bool | None
    """None: git did not say."""
    loopline: str
    """Version of the package."""


class ModelScore(Document):
    """score.json: one model on one split of a world."""

    key: Digest
    """Digest of the model, the split, the parameters and the code: equal keys mean the same score."""
    model: str
    """As it was named on the command line."""
    name: str
    """The short name in tables; of the folder too."""
    kind: ModelKind
    world: str
    split: str
    """As the world or its package calls it."""
    seeds: tuple[int, ...]
    """One per evaluation run, the same for all models; a split of the package's that is several of ours has each's."""
    temperature: float
    limits: EpisodeLimits
    scores: SplitScores
    mean_return: Share
    void_rollouts: Count
    """Rollouts that the world broke; they count as failures."""
    usage: ApiUsage | None
    """Set for a model that is paid for."""
    world_usage: ApiUsage | None = None
    """Set for a world that pays for part of its play, as for a simulated user."""
    lineage: ScoreLineage
