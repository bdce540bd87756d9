"""Documents of evaluation: dev evaluations, the selection, scores of the test splits.

Units are those of documents.py.
"""

from pydantic import Field, model_validator

from tasks.core.records.documents import Count, Digest, Document, IterationKey, Percent, Positive, Share
from tasks.core.records.timings import ApiUsage


class DifficultyScore(Document):
    """TGC on the tasks of one difficulty."""

    tasks: Count
    tgc: Percent
    tgc_se: Positive | None


class MetricScore(Document):
    """A world's own metric (tasks/core/config/world_settings.py), in its own unit."""

    name: str
    value: float
    value_se: Positive | None

    def named(self) -> dict[str, float]:
        """Return the numbers under the metric's name, as for TGC: score, score_se, base_score, score_gain."""
        numbers = self.model_dump(exclude={"name"}, exclude_none=True)
        return {_NAMED[field].format(self.name): value for field, value in numbers.items()}


class MetricScores(MetricScore):
    """The selected policy beside the base; the gain is paired."""

    base: float
    base_se: Positive | None
    gain: float
    gain_se: Positive | None


_NAMED = {
    "value": "{}",
    "value_se": "{}_se",
    "base": "base_{}",
    "base_se": "base_{}_se",
    "gain": "{}_gain",
    "gain_se": "{}_gain_se",
}


class Evaluation(Document):
    """evaluation.json: the policy after one iteration, on dev."""

    iteration: IterationKey
    adapter_digest: Digest
    tgc: Percent
    sgc: Percent
    tgc_se: Positive | None
    sgc_se: Positive | None
    mean_return: Share
    tasks: Count
    scenarios: Count
    seeds: tuple[int, ...]
    """One per evaluation run; the same at every iteration."""
    per_difficulty: dict[str, DifficultyScore]
    void_rollouts: Count
    """Rollouts that the world broke; they count as failures."""
    usage: ApiUsage | None = None
    """Set for an engine that is paid for."""
    world_usage: ApiUsage | None = Field(default=None, exclude_if=lambda usage: usage is None)
    """Set for a world that pays for part of its play, as for a simulated user; the others' files do not have it."""
    own: MetricScore | None = None
    """By the world's own metric; None where it has none beside its unit tests."""


class Candidate(Document):
    """One evaluated policy, as the selection saw it."""

    iteration: IterationKey
    dev_tgc: Percent
    dev_sgc: Percent
    adapter_digest: Digest


class CorrectedSelection(Document):
    """Dev scores to expect of the winner, without the luck of having been the best of several noisy ones.

    Standard errors are those of its own scores, clustered by scenario (tasks/select_checkpoint.py).
    """

    dev_tgc: Percent
    dev_tgc_se: Positive | None
    dev_sgc: Percent
    dev_sgc_se: Positive | None


class Selection(Candidate):
    """selection.json: the policy that won on dev, and all that stood for election."""

    candidates: tuple[Candidate, ...] = Field(min_length=1)
    corrected: CorrectedSelection | None = None
    """None where dev has one scenario only."""


class Behaviour(Document):
    """Behaviour of a policy (the behaviour table of the LOOP paper). Null where there is nothing to divide by."""

    rollouts: Count
    turns_per_rollout: Positive | None
    multi_cell_turns: Share | None
    """Turns with more than one code block / turns."""
    doc_lookups: Positive | None
    """Calls of show_api_doc per rollout."""
    assumptions: Positive | None
    """The words assume, assumed and assuming in the agent's text, per rollout."""
    dummies: Positive | None
    """The word dummy in the agent's text, per rollout."""
    give_up_rate: Share | None
    """(failed - recovered) / failed endpoints."""
    execution_errors: Share | None
    """Turns whose code failed / turns."""
    diversity: Share | None
    """Share of distinct API-call sequences among the successes of one task, over the tasks with at least two."""


class BehaviourChange(Document):
    """The base policy beside the selected one."""

    base: Behaviour
    selected: Behaviour


class DifficultyScores(DifficultyScore):
    """TGC on the tasks of one difficulty, selected policy and base."""

    base_tgc: Percent
    base_tgc_se: Positive | None


class RunsScore(Document):
    """Success in all and in one of k runs, mean over the tasks (tasks/core/evaluation/tgc_sgc.py)."""

    pass_hat: Percent
    """pass^k: all of k runs succeed."""
    pass_hat_se: Positive | None
    best_of: Percent
    """best@k: one of k runs succeeds."""
    best_of_se: Positive | None


class RunsScores(RunsScore):
    """The selected policy beside the base."""

    base_pass_hat: Percent
    base_best_of: Percent


class PairedScores(Document):
    """The selected policy beside the base, on the same tasks with the same seeds and limits.

    Every standard error is clustered by scenario; a gain is selected minus base, its standard error that of the paired
    difference.
    """

    tgc: Percent
    sgc: Percent
    tgc_se: Positive | None
    sgc_se: Positive | None
    base_tgc: Percent
    base_sgc: Percent
    base_tgc_se: Positive | None
    base_sgc_se: Positive | None
    tgc_gain: float
    tgc_gain_se: Positive | None
    sgc_gain: float
    sgc_gain_se: Positive | None
    mean_return: Share
    base_mean_return: Share
    void_rollouts: Count
    """Rollouts of either policy that the world broke; they count as failures."""
    own: MetricScores | None = None
    """By the world's own metric; None where it has none beside its unit tests."""


class EpisodeLimits(Document):
    """Limits under which episodes were played, all that `config.collection.AgentLimits` has."""

    max_turns: Count
    max_tokens_per_turn: Count
    max_observation_tokens: Count

    @property
    def in_words(self) -> str:
        """Words for tables and notes."""
        tokens = f"{self.max_tokens_per_turn:,} tokens per turn, {self.max_observation_tokens:,} per observation"
        return f"{self.max_turns:,} turns, {tokens}"


class TrainingBudget(PairedScores):
    """A split scored at the training budget, with the tasks and seeds that it was scored with at the test budget."""

    limits: EpisodeLimits
    """The training budget: `collection.limits`."""
    test_limits: EpisodeLimits
    """The test budget, at which the scores proper are."""
    played_again: bool
    """False where the two budgets are the same: nothing was played twice, and the figures are the scores proper."""

    @model_validator(mode="after")
    def _says_whether_the_budgets_differ(self) -> "TrainingBudget":
        if self.played_again != (self.limits != self.test_limits):
            raise ValueError("played_again is true where limits and test_limits differ, and only there")
        return self


class Scores(PairedScores):
    """scores/<split>.json: the scores at the test budget."""

    split: str
    iteration: IterationKey
    adapter_digest: Digest
    tasks: Count
    scenarios: Count
    seeds: tuple[int, ...]
    """One per evaluation run, shared by both policies."""
    per_difficulty: dict[str, DifficultyScores]
    per_k: dict[str, RunsScores] = Field(default_factory=dict)
    """pass^k and best@k, by k from 1 to the number of evaluation runs."""
    behaviour: BehaviourChange
    usage: ApiUsage | None = None
    """Set for an engine that is paid for."""
    world_usage: ApiUsage | None = Field(default=None, exclude_if=lambda usage: usage is None)
    """Set for a world that pays for part of its play, as for a simulated user; the others' files do not have it."""
    training_budget: TrainingBudget | None = None
    """None unless `scoring.at_training_budget` asks for it."""
