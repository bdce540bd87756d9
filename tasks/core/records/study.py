"""The document of a study, methods times training seeds: all outcomes by task, from which its tables are computed."""

from pydantic import Field

from tasks.core.records.documents import Count, Document, IterationKey, Percent

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
