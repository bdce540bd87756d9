"""params.yaml as one frozen, validated object. Needs no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from tasks.core.config.advantages import AdvantageConfig
from tasks.core.config.broken_rules import broken_rules
from tasks.core.config.collection import CollectionConfig
from tasks.core.config.engine import EngineConfig
from tasks.core.config.evaluation import EvaluationConfig, ScoringConfig
from tasks.core.config.lineage import LineageConfig
from tasks.core.config.machines import MachinesConfig
from tasks.core.config.monitor import MonitorAction, MonitorConfig
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.section import Section
from tasks.core.config.sources import Sources, sources_of
from tasks.core.config.task_filter import TaskFilterConfig
from tasks.core.config.update import WEIGHTED, UpdateConfig
from tasks.core.config.world import WorldConfig
from tasks.core.config.yaml_text import YamlFault, parse_yaml


class ParamsError(ValueError):
    """params.yaml breaks a rule; the message names file, key and rule."""


def iteration_key(index: int) -> str:
    """The key of an iteration, "i007" for 7: a letter first, because YAML would read 007 as a number."""
    return f"i{index:03d}"


def iteration_number(key: str) -> int:
    """The number of an iteration, 7 for "i007"."""
    return int(key[1:])


class Predecessors(Section):
    """Origins of one iteration, each named by the iteration that made it."""

    policy: str
    """The policy that is updated: of the iteration before."""
    behaviour: str
    """The policy that sampled the rollouts: an older one when `collection.staleness` is above 0, or when the rollouts
    are those of an earlier iteration."""
    batch: str
    """The iteration whose rollouts are trained on: this one, or an earlier one where `collection.every` is not 1."""

    @property
    def staleness(self) -> int:
        """Updates between the policy that samples and the one that is updated."""
        return iteration_number(self.policy) - iteration_number(self.behaviour)


def previous_map(iterations: int, staleness: int = 0, every: int = 1) -> dict[str, Predecessors]:
    """{i001: {policy: i000, ...}, ...}: what DVC's foreach runs over, since its templating cannot count.

    Rollouts are collected in every `every`-th iteration, beginning with the first; 0: in the first alone.
    """
    batches = {i: i - (i - 1) % every if every else 1 for i in range(1, iterations + 1)}
    return {
        iteration_key(i): Predecessors(
            policy=iteration_key(i - 1),
            behaviour=iteration_key(max(0, batch - 1 - staleness)),
            batch=iteration_key(batch),
        )
        for i, batch in batches.items()
    }


def sampling_maps(previous: Mapping[str, Predecessors], *, searching: bool = False) -> dict[str, dict[str, str]]:
    """{collected: {i001: i000, ...}, searched: {}}: the iterations that sample, and the policy that they ask.

    They collect rollouts, or, where a method is `searching`, search trees.
    """
    sampled = {key: before.behaviour for key, before in previous.items() if before.batch == key}
    return {"collected": {}, "searched": sampled} if searching else {"collected": sampled, "searched": {}}


def evaluated_keys(iterations: int, every: int) -> list[str]:
    """The iterations whose policies are evaluated on dev: the base, every n-th, and the last."""
    return [iteration_key(i) for i in range(iterations + 1) if i % every == 0 or i == iterations]


def monitoring_maps(previous: Mapping[str, Predecessors], action: MonitorAction) -> dict[str, Any]:
    """{monitored: {i001: i000, ...}, neutral_courses: data/courses/i000.json}: where the collapse monitor sets courses.

    Where it is to do nothing, no iteration has a stage for it, and one stage writes all courses: a folder of them.
    Courses lie at the same places either way, so that the action can be changed in the middle of a run.
    """
    if action == "none":
        return {"monitored": {}, "neutral_courses": NEUTRAL_COURSES}
    monitored = {key: before.policy for key, before in previous.items()}
    return {"monitored": monitored, "neutral_courses": f"{NEUTRAL_COURSES}/{iteration_key(0)}.json"}


NEUTRAL_COURSES = "data/courses"
DERIVED_MAPS = ("previous", "collected", "searched", "monitored", "neutral_courses", "evaluated", "sources")
"""Parts of params.yaml that are no knobs: they follow from `iterations`, `collection.staleness`, `collection.every`,
`collection.tree`, `monitor.action`, `evaluation.every`, `policy.source` and the world's data."""


MOST_ITERATIONS = 999
"""Keys of iterations have three digits."""


class Params(Section):
    """The whole of params.yaml."""

    profiles: tuple[str, ...] = ("default",)
    """Those that params.yaml was made from, the later on top of the earlier; values may have been changed since."""
    seed: int = Field(0, ge=0)
    iterations: int = Field(20, ge=0, le=MOST_ITERATIONS, strict=True)
    """0: score the base policy, train nothing."""
    previous: dict[str, Predecessors]
    """Derived from `iterations`, `collection.staleness` and `.every` by `python -m flows.configure`."""
    collected: dict[str, str] = Field(
        default_factory=lambda checked: sampling_maps(checked.get("previous", {}))["collected"]
    )
    """Derived from `previous` by `python -m flows.configure`; empty where trees are searched."""
    searched: dict[str, str] = Field(default_factory=dict)
    """As `collected`, where `collection.tree` is set; else empty."""
    monitored: dict[str, str] = Field(default_factory=dict)
    """The iterations after which the collapse monitor sets the course, and those before them, where `monitor.action`
    is set; else empty."""
    neutral_courses: str = NEUTRAL_COURSES
    """Courses that begin_courses writes: every course, or, where `monitor.action` is set, the first one only."""
    evaluated: list[str]
    """Derived from `iterations` and `evaluation.every` by `python -m flows.configure`."""
    world: WorldConfig = WorldConfig()
    policy: PolicyConfig = PolicyConfig()
    tasks: TaskFilterConfig = TaskFilterConfig()
    collection: CollectionConfig = CollectionConfig()
    engine: EngineConfig = EngineConfig()
    machines: MachinesConfig = MachinesConfig()
    advantages: AdvantageConfig = AdvantageConfig()
    update: UpdateConfig = UpdateConfig()
    monitor: MonitorConfig = MonitorConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    scoring: ScoringConfig = ScoringConfig()
    lineage: LineageConfig = LineageConfig()
    sources: Sources = Field(default_factory=lambda checked: _sources(checked))
    """Derived from `policy.source`, `policy.revision` and the root of the world by `python -m flows.configure`."""

    @property
    def sampled(self) -> dict[str, str]:
        """The iterations that have rollouts of their own, collected or searched, and the policy that sampled them."""
        return self.collected | self.searched

    @property
    def root(self) -> "Params":
        """These parameters, for inputs that are made of other inputs."""
        return self

    @model_validator(mode="after")
    def _method_is_whole(self) -> "Params":
        if (self.update.objective == "preference") != (self.advantages.pair_gap is not None):
            raise ValueError("update.objective: preference needs advantages.pair_gap, and no other objective takes it")
        if self.collection.tree is not None and self.advantages.pair_gap is None:
            raise ValueError("collection.tree makes pairs of turns; set advantages.pair_gap and objective: preference")
        sampled = self.collection
        if sampled.tree is not None and (sampled.demonstrations or sampled.temperatures or sampled.turn_progress):
            raise ValueError("collection.tree goes with no demonstrations, temperatures or turn_progress; unset them")
        if self.advantages.estimator == "turn_progress" and not self.collection.turn_progress:
            raise ValueError("advantages.estimator: turn_progress needs collection.turn_progress: true")
        return self

    @model_validator(mode="after")
    def _a_critic_sees_returns(self) -> "Params":
        if self.update.critic is None:
            return self
        if self.advantages.estimator != "episode_return":
            raise ValueError("update.critic subtracts its own baseline; set advantages.estimator: episode_return")
        given = self.advantages
        for knob, changes_returns in (
            ("divide_by_std: null", given.divide_by_std),
            ("normalise_over_batch: false", given.normalise_over_batch),
            ("min_absolute_advantage: 0.0", given.min_absolute_advantage),
        ):
            if changes_returns:
                raise ValueError(f"update.critic learns returns, those of failures too; set advantages.{knob}")
        return self

    @model_validator(mode="after")
    def _rollouts_fit_the_objective(self) -> "Params":
        sampled, weighted = self.collection, self.update.objective in WEIGHTED
        for name in ("temperatures", "demonstrations"):
            if weighted and getattr(sampled, name):
                raise ValueError(
                    f"collection.{name}: update.objective: {self.update.objective} takes rollouts for the policy's own "
                    "at collection.temperature; set the objective to supervised, or unset it"
                )
        if sampled.tree is not None and self.advantages.filters_groups:
            raise ValueError(
                "collection.tree: a tree is no group of rollouts; set advantages.top_variance_share: 1.0 and "
                "variance_share_of: groups"
            )
        if sampled.tree is not None and self.monitor.action == "tighten_filter":
            raise ValueError("collection.tree: trees are not filtered; monitor.action: tighten_filter would do nothing")
        return self

    @model_validator(mode="after")
    def _a_tightened_filter_is_tighter(self) -> "Params":
        tightened, share = self.monitor.variance_share, self.advantages.top_variance_share
        if self.monitor.action == "tighten_filter" and self.advantages.variance_share_of == "largest":
            raise ValueError(
                "monitor.action: tighten_filter makes the share smaller, which keeps more groups where "
                "advantages.variance_share_of is largest; set that to groups, mass or softmax"
            )
        if self.monitor.action == "tighten_filter" and tightened >= share:
            raise ValueError(
                f"monitor.action: tighten_filter would do nothing: set monitor.variance_share ({tightened}) below "
                f"advantages.top_variance_share ({share})"
            )
        return self

    @model_validator(mode="after")
    def _maps_are_in_step(self) -> "Params":
        collection = self.collection
        if self.previous != previous_map(self.iterations, collection.staleness, collection.every):
            raise ValueError(
                f"`previous` is not in step with iterations, collection.staleness and collection.every; {_REGENERATE}"
            )
        if {"collected": self.collected, "searched": self.searched} != sampling_maps(
            self.previous, searching=collection.tree is not None
        ):
            raise ValueError(
                f"`collected` or `searched` is not in step with `previous` and collection.tree; {_REGENERATE}"
            )
        if {"monitored": self.monitored, "neutral_courses": self.neutral_courses} != monitoring_maps(
            self.previous, self.monitor.action
        ):
            raise ValueError(
                f"`monitored` or `neutral_courses` is not in step with `previous` and monitor.action; {_REGENERATE}"
            )
        if self.sources != sources_of(self.policy, self.world):
            raise ValueError(f"`sources` is not in step with policy.source and world.*.root; {_REGENERATE}")
        if self.evaluated != evaluated_keys(self.iterations, self.evaluation.every):
            raise ValueError(f"`evaluated` is not in step with iterations and evaluation.every; {_REGENERATE}")
        if self.collection.engine == "chat_api" and self.iterations:
            raise ValueError(
                "collection.engine: chat_api asks a model behind an API, which can be scored but not trained; "
                "set iterations: 0, or start from `python -m flows.configure openai`"
            )
        if self.collection.engine == "chat_api" and self.scoring.at_training_budget:
            raise ValueError(
                "scoring.at_training_budget: a model behind an API has no training budget here, and would be paid for "
                "twice; set it to false"
            )
        if self.collection.engine == "chat_api" and self.machines.ray.address is not None:
            raise ValueError(
                "machines.ray: the rate limits of collection.chat_api hold for one process; set its address to null"
            )
        limits = self.collection.limits
        evaluated = self.evaluation.limits.of(limits)
        for section, played in (
            ("collection", limits),
            ("evaluation", evaluated),
            ("scoring", self.scoring.limits.of(evaluated)),
        ):
            if played.max_turns < self.world.most_turns:
                raise ValueError(
                    f"{section}.limits.max_turns is below world.{self.world.name}.max_turns "
                    f"({self.world.most_turns}): episodes would be cut before the world ends them, without a return"
                )
        stop = self.collection.early_stop
        if stop is not None and stop.min_per_task > self.collection.rollouts_per_task:
            raise ValueError("collection.early_stop.min_per_task is larger than collection.rollouts_per_task")
        return self


def _sources(checked: Mapping[str, Any]) -> Sources:
    """Return the sources of the sections that were found valid; those of the default where one was not."""
    return sources_of(checked.get("policy", PolicyConfig()), checked.get("world", WorldConfig()))


_REGENERATE = "run `python -m flows.configure --refresh`"


def load_params(path: Path) -> Params:
    """Read and check params.yaml. Raises ParamsError with one line per broken rule."""
    return parse_params(read_yaml(path), str(path))


def read_yaml(path: Path) -> Any:
    """The content of a YAML file. Raises ParamsError."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ParamsError(f"{path}: missing; run `python -m flows.configure default`") from None
    except OSError as error:
        raise ParamsError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, YamlFault) as error:
        raise ParamsError(f"{path}: not valid YAML: {error}") from None


def parse_params(content: Any, place: str) -> Params:
    """Check a params mapping. Raises ParamsError; `place` names it in the message."""
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        raise ParamsError("\n".join(f"{place}: {rule}" for rule in broken_rules(error, "(top level)"))) from None
