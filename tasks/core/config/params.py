"""params.yaml as one frozen, validated object. Needs no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from tasks.core.config.advantages import AdvantageConfig
from tasks.core.config.broken_rules import broken_rules
from tasks.core.config.collection import CollectionConfig, TaskFilterConfig
from tasks.core.config.dag import Dag, dag_of
from tasks.core.config.engine import EngineConfig, EngineSection
from tasks.core.config.evaluation import EvaluationConfig, ScoringConfig
from tasks.core.config.lineage import LineageConfig
from tasks.core.config.machines import MachinesConfig
from tasks.core.config.monitor import MonitorConfig
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.section import Section
from tasks.core.config.update import WEIGHTED, UpdateConfig
from tasks.core.config.world import WorldConfig, WorldSection
from tasks.core.config.yaml_text import YamlFault, parse_yaml


class ParamsError(ValueError):
    """params.yaml breaks a rule; the message names file, key and rule."""


MOST_ITERATIONS = 999
"""Keys of iterations have three digits."""


class Params(Section):
    """The whole of params.yaml."""

    profiles: tuple[str, ...] = ("default",)
    """Written by `loopline configure` from these, the later on top. Values may have been changed since."""
    seed: int = Field(0, ge=0)
    """Seed of the whole run: every stream of random numbers is derived from it."""
    iterations: int = Field(20, ge=0, le=MOST_ITERATIONS, strict=True)
    """Iterations of rollouts and update. 0: score the base policy, train nothing."""
    world: WorldConfig = Field(default_factory=lambda: WorldSection.of())
    """World that the agent lives in."""
    policy: PolicyConfig = PolicyConfig()
    """Base policy, and the part of it that is trained."""
    tasks: TaskFilterConfig = TaskFilterConfig()
    """Training tasks that stay."""
    collection: CollectionConfig = CollectionConfig()
    """Rollouts of one iteration."""
    engine: EngineConfig = Field(default_factory=lambda: EngineSection.of())
    """Engine that samples, transformers, vllm, oracle, scripted or chat_api."""
    machines: MachinesConfig = MachinesConfig()
    """Machines that do the work. No byte depends on them."""
    advantages: AdvantageConfig = AdvantageConfig()
    """From returns to advantages, and which rollouts train."""
    update: UpdateConfig = UpdateConfig()
    """One update of the policy."""
    monitor: MonitorConfig = MonitorConfig()
    """Warnings of a collapse of training, and what follows one."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Evaluation of checkpoints on dev."""
    scoring: ScoringConfig = ScoringConfig()
    """Scores on Test-N and Test-C."""
    lineage: LineageConfig = LineageConfig()
    """Names in MLflow."""
    dag: Dag = Field(default_factory=lambda checked: _dag(checked))
    """Iterations and files for DVC's foreach; no knobs. `loopline configure` derives it from the knobs above."""

    @property
    def root(self) -> "Params":
        """These parameters, for inputs that are made of other inputs."""
        return self

    @model_validator(mode="after")
    def _method_is_whole(self) -> "Params":
        if (self.update.objective == "preference") != (self.advantages.pair_gap is not None):
            raise ValueError("update.objective: preference needs advantages.pair_gap, and no other objective uses it")
        if self.collection.tree is not None and self.advantages.pair_gap is None:
            raise ValueError("collection.tree makes pairs of turns; set advantages.pair_gap and objective: preference")
        sampled = self.collection
        if sampled.tree is not None and (sampled.demonstrations or sampled.temperatures or sampled.turn_progress):
            raise ValueError("collection.tree supports no demonstrations, temperatures or turn_progress; unset them")
        if self.advantages.by_turn and not sampled.turn_progress:
            raise ValueError(f"advantages.estimator: {self.advantages.estimator} needs collection.turn_progress: true")
        if sampled.tree is not None and self.advantages.returns == "shuffled":
            raise ValueError("advantages.returns: shuffled needs rollouts of a task to compare; unset collection.tree")
        return self

    @model_validator(mode="after")
    def _a_critic_sees_returns(self) -> "Params":
        if self.update.critic is None:
            return self
        if self.advantages.estimator != "episode_return":
            raise ValueError("update.critic subtracts its own baseline; set advantages.estimator: episode_return")
        given = self.advantages
        if given.returns == "shuffled":
            raise ValueError("update.critic learns the returns that were earned; set advantages.returns: share")
        if self.update.critic.rewards == "turns" and given.returns != "share":
            raise ValueError(
                f"advantages.returns: {given.returns} is not what update.critic.rewards: turns learns, the world's own "
                "rewards; set returns to share, or rewards to return"
            )
        for knob, changes_returns in (
            ("divide_by_std: null", given.divide_by_std),
            ("normalise_over_batch: false", given.normalise_over_batch),
            ("min_absolute_advantage: 0.0", given.min_absolute_advantage),
        ):
            if changes_returns:
                raise ValueError(f"update.critic learns the returns of failures too; set advantages.{knob}")
        return self

    @model_validator(mode="after")
    def _rollouts_fit_the_objective(self) -> "Params":
        sampled, weighted = self.collection, self.update.objective in WEIGHTED
        for name in ("temperatures", "demonstrations"):
            if weighted and getattr(sampled, name):
                raise ValueError(
                    f"collection.{name}: update.objective: {self.update.objective} assumes that the policy sampled all "
                    "rollouts at collection.temperature; set the objective to supervised, or unset it"
                )
        if sampled.tree is not None and self.advantages.filters_groups:
            raise ValueError(
                "collection.tree: a tree is not a group of rollouts; set advantages.top_variance_share: 1.0 and "
                "variance_share_of: groups"
            )
        return self

    @model_validator(mode="after")
    def _dag_is_in_step(self) -> "Params":
        derived = _dag(dict(self)).with_package_of(self.dag)
        for name in Dag.model_fields:
            if getattr(self.dag, name) != getattr(derived, name):
                raise ValueError(f"dag.{name} does not match the knobs that determine it; {_REGENERATE}")
        return self

    @model_validator(mode="after")
    def _the_world_can_train(self) -> "Params":
        if self.iterations and (why := self.world.settings.only_scored):
            raise ValueError(f"world.{self.world.name}.{why}; set iterations: 0")
        return self

    @model_validator(mode="after")
    def _the_engine_can_play(self) -> "Params":
        engine, processes = self.engine, self.machines.processes
        engine.kind.check(engine.own, self)
        if self.update.distributed.nodes > 1 and self.machines.ray.address is None:
            raise ValueError("update.distributed.nodes > 1 needs machines.ray.address, the cluster of these machines")
        if not engine.kind.in_process and processes not in (1, "auto"):
            raise ValueError(f"machines.processes: {engine.name} answers one process of a machine; set it to 1 or auto")
        return self

    @model_validator(mode="after")
    def _the_engine_follows_the_sampling(self) -> "Params":
        check, own = self.engine.kind.check_sampling, self.engine.own
        for temperature in (self.collection.temperature, *self.collection.temperatures) if self.iterations else ():
            check(own, "collection", temperature)
        for section, asked in (("evaluation", self.evaluation), ("scoring", self.scoring)):
            check(own, section, asked.temperature, asked.top_k, asked.top_p)
        return self

    @model_validator(mode="after")
    def _episodes_end_by_themselves(self) -> "Params":
        limits = self.collection.limits
        evaluated = self.evaluation.limits.of(limits)
        for section, played in (
            ("collection", limits),
            ("evaluation", evaluated),
            ("scoring", self.scoring.limits.of(evaluated)),
        ):
            if played.max_turns < (most := self.world.settings.most_turns):
                raise ValueError(
                    f"{section}.limits.max_turns is below world.{self.world.name}.max_turns "
                    f"({most}): episodes would be cut before the world ends them, without a return"
                )
        stop = self.collection.early_stop
        if stop is not None and stop.min_per_task > self.collection.rollouts_per_task:
            raise ValueError("collection.early_stop.min_per_task is larger than collection.rollouts_per_task")
        return self


def _dag(checked: Mapping[str, Any]) -> Dag:
    """Return the section that follows from the knobs."""
    return dag_of(*(checked[name] for name in ("iterations", "collection", "evaluation", "policy", "world")))


_REGENERATE = "run `loopline configure --refresh`"
_OF_DAG = (
    "dag: of another version, and no section that people write; `loopline configure PROFILE` writes params.yaml anew; "
    "where it names no knob that has left, so does `loopline configure --refresh`"
)


def load_params(path: Path) -> Params:
    """Read and check params.yaml. Raises ParamsError with one line per broken rule."""
    return parse_params(read_yaml(path), str(path))


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file. Raises ParamsError."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ParamsError(f"{path}: missing; run `loopline configure default`") from None
    except OSError as error:
        raise ParamsError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, YamlFault) as error:
        raise ParamsError(f"{path}: not valid YAML: {error}") from None


def parse_params(content: Any, source: str) -> Params:
    """Check a params mapping. Raises ParamsError; `source` names the file."""
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        rules = broken_rules(error, "(top level)", Params)
        told = dict.fromkeys(_OF_DAG if rule.startswith("dag.") else rule for rule in rules)
        raise ParamsError("\n".join(f"{source}: {rule}" for rule in told)) from None


def params_of_knobs(content: Mapping[str, Any], source: str) -> Params:
    """Check knobs; the section that follows from them is derived anew, whatever it says. Raises ParamsError."""
    return parse_params({name: value for name, value in content.items() if name != "dag"}, source)
