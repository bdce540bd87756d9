"""The document of a study, methods times training seeds: data/comparisons/<name>/study.json."""

from typing import Literal

from pydantic import Field

from tasks.core.records.comparison import TestedDifference
from tasks.core.records.documents import Count, Document, IterationKey, Percent, Positive, Share
from tasks.core.records.monitoring import CollapseWarning

NO_FINE_TUNING = "nft"
"""The row of the base policy, which every run scores along with its own policy."""


class SplitScore(Document):
    """The scores of one policy on one split."""

    tgc: Percent
    sgc: Percent
    tasks: Count


class CurvePoint(Document):
    """One iteration of a run's learning curve."""

    iteration: Count
    mean_return: Share | None
    dev_tgc: Percent | None
    """None if the policy was not evaluated."""


class StudyRun(Document):
    """A method trained to the end with one seed."""

    method: str
    seed: int
    experiment: str
    """Name of the run in `dvc exp` and MLflow."""
    command: str
    """The command that recreates its params.yaml."""
    selected: IterationKey
    dev_tgc: Percent
    scores: dict[str, SplitScore]
    """By test split."""
    base_scores: dict[str, SplitScore]
    rollouts: Count
    """Training rollouts played, including void rollouts."""
    tokens: Count
    """Tokens that the policy sampled for them."""
    optimizer_steps: Count
    wall_s: Positive
    """Seconds of all attempts with this code and these parameters, if the run was interrupted."""
    cpu_s: Positive
    curve: tuple[CurvePoint, ...]
    warnings: tuple[CollapseWarning, ...] = ()
    """Signs of a collapse, by iteration."""


class MethodScore(Document):
    """The score of a method on one split and metric, over its training seeds."""

    method: str
    split: str
    metric: Literal["tgc", "sgc"]
    mean: Percent
    spread: Positive | None
    """Standard deviation over the seeds; None for a single seed."""
    seeds: Count


class MethodDifference(TestedDifference):
    """A method minus the method it is compared with; see tasks.core.evaluation.method_differences."""

    method: str
    split: str
    metric: Literal["tgc", "sgc"]
    corrected_p_value: Share | None
    """Corrected by Holm's method, over the methods of the same split and metric that are tested."""
    seeds: Count
    """Training seeds that both have."""


class MethodOrdering(MethodDifference):
    """A claim that one method is above another: the first minus the second. Holm's correction is over the claims."""

    below: str


class Study(Document):
    """Everything that the tables and the page of a study show."""

    name: str
    against: str
    confidence: float = Field(gt=0, lt=1)
    git_commit: str
    runs: tuple[StudyRun, ...] = Field(min_length=1)
    scores: tuple[MethodScore, ...]
    differences: tuple[MethodDifference, ...]
    orderings: tuple[MethodOrdering, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes that a reader must know: different budgets, different worlds, failed runs."""
