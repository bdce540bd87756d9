"""The JSON artifacts: one typed model each, validated when it is written and when it is read.

All shares are in [0, 1] and all TGC and SGC figures (and their standard errors) in percent. A figure that is undefined
(a standard error from one scenario, the KL of an update that trained on nothing) is null, never NaN.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    ValidationError,
    field_validator,
    model_validator,
)

from tasks.core.config.broken_rules import broken_rules
from tasks.core.records.files import ArtifactError, read_json, write_json

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Positive = Annotated[float, Field(ge=0)]
IterationKey = Annotated[str, Field(pattern=r"^i\d{3}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Passes = Literal["packed", "single", "single_eager"]
"""How the learner's forward passes take rollouts: side by side in packs; one to a pass; or one to a pass, with the
eager attention of the model's own file."""
T = TypeVar("T")
OnlyWhereGiven = Annotated[T | None, Field(exclude_if=lambda value: value is None)]
"""A field that is left out of the file where it is None."""


class Document(BaseModel):
    """A JSON artifact. Strict about names and types; a misspelt or missing field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class StageVersion(Document):
    """The code that a stage runs and the parameters that it reads; DVC compares the digests of both."""

    code: str = Field(pattern=r"^[0-9a-f]{16}$")
    """First digits of a SHA-256 over the files that it runs."""
    params: str = Field(pattern=r"^[0-9a-f]{16}$")
    """The same over the values of its knobs in data/manifest.json."""

    @property
    def digest(self) -> str:
        """Both in one: 32 hexadecimal digits."""
        return self.code + self.params


class StageVersions(RootModel[dict[str, StageVersion]]):
    """data/stage_versions.json: the version of every stage but the one that writes them, by its name."""


def digest_of_code(files: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256, in hexadecimal, over the names of files and their SHA-256, in this order."""
    total = hashlib.sha256()
    for name, content in files:
        total.update(name.encode() + b"\0" + bytes.fromhex(content))
    return total.hexdigest()


class RunManifest(Document):
    """data/manifest.json: the parameters and the code that version_stages saw, with which all other stages run."""

    params: dict[str, JsonValue]
    """All parameters, defaults and derived maps included."""
    params_file: Digest
    """SHA-256 of the bytes of params.yaml."""
    files: dict[str, Digest]
    """SHA-256 of each file of code that some stage runs, by its path relative to the project's root."""
    stages: dict[str, tuple[str, ...]]
    """The files that each stage runs."""

    def code_of(self, stage: str) -> str:
        """Return the SHA-256, in hexadecimal, over names and contents of the files that `stage` runs."""
        return digest_of_code((name, self.files[name]) for name in self.stages[stage])


class Attestation(Document):
    """data/attestations/STAGE/KEY.json: the statement of a stage about what it wrote, and with what.

    It lies beside the artifacts and not in them: a digest of code in rollouts would make every stage behind them run
    again after an edit that changes no rollout.
    """

    stage: str
    key: str
    version: StageVersion
    """Digests of the code and the parameters that the process really ran with."""
    outs: dict[str, str]
    """DVC's md5 of each output, by its path relative to the project's root, except those that hold wall-clock times."""


class EngineMismatch(Document):
    """|engine log-prob - learner log-prob| over the policy tokens of one iteration."""

    mean: Positive
    max: Positive
    noise: Positive
    """Limit of what rounding can do to one token in the policy's dtype."""
    share_over_noise: Share
    """Share of policy tokens whose difference is over it."""


class WarmStartRecord(Document):
    """warm_start.json: the supervised training of the base model."""

    losses: tuple[float, ...]
    """Loss of every optimizer step, in nats per policy token; none where the base model is used as it is."""


class Preflight(Document):
    """preflight.json: what was tried before the first rollout, and fits. Nothing measured: collection waits on it."""

    positions: Count
    """Positions of one forward and backward pass; 0 when the run trains nothing."""
    rollouts: Count
    ranks: Count
    passes: Passes | None
    """The fastest way in which the learner computes the model's own function; null when the run trains nothing."""


class Timings(Document):
    """timings.json: the wall-clock figures of one collection."""

    wall_s: Positive
    engine_s: Positive
    """In the engine."""
    waiting_s: Positive
    """Blocked on the world."""
    world_s: Positive
    """In the world, summed over its threads."""
    generated_tokens: Count
    tokens_per_s: Positive
    rollouts: Count
    end_reasons: dict[str, Count]
    """Rollouts by `end_reason`."""
    world_retries: Count
    """Rollouts that were played again because of a world fault."""
    deliveries: OnlyWhereGiven[list[dict[str, JsonValue]]] = None
    """Proofs of the policy's delivery to servers (tasks/core/engines/vllm_server/weight_sync_check.py)."""
    clocks: dict[str, list[Positive]] = Field(default_factory=dict)
    """When each rollout ("task#index") was opened and its turns were answered, seconds since the epoch."""
    world_faults: dict[str, Count] = Field(default_factory=dict)
    """How often the world broke, by what it said: the most frequent texts."""

    @field_validator("deliveries")
    @classmethod
    def _are_finite(cls, deliveries: list[dict[str, JsonValue]] | None) -> list[dict[str, JsonValue]] | None:
        try:
            json.dumps(deliveries, allow_nan=False)
        except ValueError:
            raise ValueError("NaN and infinity are not JSON") from None
        return deliveries

    @property
    def most_frequent_fault(self) -> str:
        """The end of an error's message: "; most often (n times): ...", or "" where the world never broke."""
        said = max(self.world_faults, key=lambda text: self.world_faults[text], default=None)
        return "" if said is None else f"; most often ({self.world_faults[said]} times): {said}"


class ResponseStats(Document):
    """Figures of the text of an iteration's finished rollouts (tasks/filter_advantages.py)."""

    length: Positive
    """Tokens that the policy sampled in one rollout, mean."""
    repetition: Share
    """Share of a rollout's 4-grams that were in it before, mean over the rollouts."""
    distinct: Share
    """Different responses among one task's rollouts / rollouts, mean over the tasks with at least two."""


class PromptInformation(Document):
    """Mutual information of first turns and their prompts (tasks/core/learner/prompt_information.py), over the
    batch that trains: what the filter dropped is not in it."""

    nats: float
    """Estimate of their mutual information; from a sample, so it can be below 0."""
    share: float
    """Share of the most that can be: the logarithm of the number of prompts."""
    prompts: Count
    responses: Count


class AdvantageSummary(Document):
    """advantages.json: what one iteration's rollouts looked like, and how many of them train.

    Figures are left out where they mean nothing: those of the filter with searched trees, those of pairs without,
    and all of them in preflight, where no policy plays.
    """

    mean_return: Share
    group_return_std: Positive
    """Mean over the tasks of the standard deviation of the returns within one task's rollouts."""
    rollouts: Count
    finished_rollouts: Count
    kept_rollouts: Count
    end_reasons: dict[str, Count]
    """Rollouts by `end_reason`."""
    responses: ResponseStats | None = None
    """null in preflight, where no policy plays."""
    note: str | None = None
    """A remark for a person, say that every advantage was zero."""
    success_rate: OnlyWhereGiven[Share] = None
    groups: OnlyWhereGiven[Count] = None
    """Tasks whose rollouts were compared with each other."""
    mixed_groups: OnlyWhereGiven[Share] = None
    """Share of the groups whose returns vary."""
    left_out_groups: OnlyWhereGiven[Count] = None
    """Tasks with too few finished rollouts to compare."""
    dropped_low_variance_group: OnlyWhereGiven[Count] = None
    """Rollouts that the filter of groups dropped."""
    dropped_small_advantage: OnlyWhereGiven[Count] = None
    dropped_without_tokens: OnlyWhereGiven[Count] = None
    """Rollouts that the policy sampled nothing of."""
    dropped_lone_rollouts: OnlyWhereGiven[Count] = None
    """Rollouts that have none of their task beside them."""
    compared_turns: OnlyWhereGiven[Count] = None
    """Pairs of turns of the searched trees."""
    pairs: OnlyWhereGiven[Count] = None
    """Those that train."""
    widest_gap: OnlyWhereGiven[Positive] = None
    """Largest difference of Q."""


class Metrics(Document):
    """metrics.json: one policy update. The figures of the update are null when nothing trained (see `note`)."""

    mean_return: Share
    group_return_std: Positive
    kept_rollouts: Count
    responses: ResponseStats | None = None
    """null in preflight, where no policy plays."""
    prompt_information: PromptInformation | None = None
    """Estimate for the policy before the update, like the entropy; null where it was not measured."""
    entropy: float | None
    """Mean over the policy tokens, in nats."""
    kl: float | None
    """k3 estimate of KL(policy before || policy now) at the last minibatch, whatever `update.kl_stop` takes. Before
    that one's step: 0 where an update is one step."""
    grad_norm: Positive | None
    """Mean over the optimizer steps, before clipping."""
    largest_grad_norm: Positive | None
    clip_fraction: Share | None
    loss: float | None
    """Mean over the optimizer steps."""
    value_loss: Positive | None = None
    """Half the mean squared error of the critic, mean over the optimizer steps; null without one."""
    engine_mismatch: EngineMismatch | None
    staleness: Count | None = None
    """Updates between the policy that sampled the rollouts and the one that was updated."""
    behaviour_kl: float | None = None
    """Estimate of KL(policy that sampled || policy before the update), mean over the rollouts; this and the two below
    are null where the loss was not weighted by pi_old / pi_behaviour."""
    behaviour_weight: Positive | None = None
    """Mean over the importance units."""
    capped_behaviour_weights: Share | None = None
    """Share of the importance units whose weight is at the cap."""
    optimizer_steps: Count
    planned_optimizer_steps: Count
    total_optimizer_steps: Count | None = None
    """Since the base policy."""
    stopped_early: bool
    """Whether `update.kl_stop` ended the update before all planned steps."""
    tokens_per_s: Positive | None
    """Tokens that the learner passed forward and backward per second of wall clock."""
    update_s: Positive | None
    note: str | None = None


class DifficultyScore(Document):
    """TGC on the tasks of one difficulty."""

    tasks: Count
    tgc: Percent
    tgc_se: Positive | None


class ApiUsage(Document):
    """Tokens and money that turns behind an API took; each counts once, those of a failed attempt too."""

    models: tuple[str, ...]
    """As the server named them."""
    answers: Count
    retries: Count
    """Requests beyond one per answer."""
    prompt_tokens: Count
    cached_tokens: Count
    """Those of the prompt tokens that the server had cached."""
    answer_tokens: Count
    """Sampled ones, hidden reasoning included."""
    cost_usd: Positive
    """At the prices that params.yaml held when it was played."""


def total_usage(parts: Iterable[ApiUsage | None]) -> ApiUsage | None:
    """The sum of what was paid for; None when nothing was."""
    paid = [part for part in parts if part is not None]
    if not paid:
        return None
    counts = ("answers", "retries", "prompt_tokens", "cached_tokens", "answer_tokens", "cost_usd")
    sums = {name: sum(getattr(part, name) for part in paid) for name in counts}
    return ApiUsage(models=tuple(sorted({model for part in paid for model in part.models})), **sums)


class MetricScore(Document):
    """A world's own metric (tasks/core/config/world_metric.py), in its own unit."""

    name: str
    value: float
    value_se: Positive | None

    def named(self) -> dict[str, float]:
        """Its numbers by the metric's name, as those of TGC are called: score, score_se, base_score, score_gain."""
        found = self.model_dump(exclude={"name"}, exclude_none=True)
        return {_NAMED[field].format(self.name): value for field, value in found.items()}


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
    behaviour: BehaviourChange
    usage: ApiUsage | None = None
    """Set for an engine that is paid for."""
    training_budget: TrainingBudget | None = None
    """None unless `scoring.at_training_budget` asks for it."""


D = TypeVar("D", bound=BaseModel)


def write_document(path: Path, document: BaseModel) -> None:
    """Write a document atomically as sorted, indented JSON. Raises ArtifactError naming file and field."""
    content = document.model_dump(mode="json")
    _validated(path, type(document), content)
    write_json(path, content)


def read_document(path: Path, kind: type[D]) -> D:
    """Read and validate. Raises ArtifactError naming file, field and rule, or what to do when the file is missing."""
    return _validated(path, kind, read_json(path))


def _validated(path: Path, kind: type[D], content: dict[str, JsonValue]) -> D:
    try:
        return kind.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise ArtifactError("\n".join(f"{path}: {rule}" for rule in broken_rules(error, "(document)"))) from None
