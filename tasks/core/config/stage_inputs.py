"""Inputs of stages: one frozen class for what each reads of params.yaml; what is no field of it, the stage cannot see.

A field is named by its place in params.yaml: a top-level name, or `knob("collection.temperature")`. The values of all
fields, but for what a section marks as UNVERSIONED, are the stage's version (flows/dag/version_stages.py).
"""

import datetime
from typing import Annotated, Any, Self

from pydantic import AliasPath, BeforeValidator, ConfigDict, Field, ValidationInfo

from tasks.core.config.advantages import AdvantageConfig
from tasks.core.config.collection import (
    AgentLimits,
    ChangedLimits,
    EarlyStop,
    Shards,
    TaskDrawing,
    TaskFilterConfig,
    Temperatures,
    TreeConfig,
)
from tasks.core.config.dag import NO_WORLD_FILES, Predecessors
from tasks.core.config.engine import EngineConfig
from tasks.core.config.evaluation import EvaluationConfig, ScoringConfig
from tasks.core.config.monitor import InformationConfig
from tasks.core.config.params import Params
from tasks.core.config.policy import ChatSettings, Dtype, PolicyConfig, WarmStart
from tasks.core.config.section import UNVERSIONED, Section
from tasks.core.config.update import (
    DistributedConfig,
    ObjectiveName,
    PreferenceReference,
    UpdateConfig,
    needs_reference,
)
from tasks.core.config.world import WorldConfig

Previous = Annotated[dict[str, Predecessors], UNVERSIONED]
"""By iteration. DVC sees a change of it in the policies on which an iteration depends."""
IsPositive = Annotated[bool, BeforeValidator(lambda value: value > 0)]
"""A number of which the stage sees only whether it is positive."""
IsGiven = Annotated[bool, BeforeValidator(bool)]
"""A section of which the stage sees only whether there is one."""


def _if_recited(value: Any, info: ValidationInfo) -> Any:
    return None if info.data["recited_world"] == NO_WORLD_FILES else value


IfRecited = BeforeValidator(_if_recited)
"""Marks what the stage sees only where it recites the world: no other warm start is made anew with the world."""


def knob(dotted: str, default: Any = ...) -> Any:
    """Return a field with the value of this knob of params.yaml, or `default` where the section in use lacks it."""
    return Field(default, validation_alias=AliasPath(*dotted.split(".")))


class StageInputs(Section):
    """The parameters of one stage."""

    model_config = ConfigDict(from_attributes=True, validate_by_name=True, validate_by_alias=True)

    @classmethod
    def of(cls, params: Params) -> Self:
        """Return the values of these parameters in params.yaml."""
        return cls.model_validate(params)

    @classmethod
    def knob_of(cls, name: str) -> str:
        """Place of the field `name` in params.yaml: "collection.temperature"."""
        alias = cls.model_fields[name].validation_alias
        return ".".join(map(str, alias.path)) if isinstance(alias, AliasPath) else name


class WorldInputs(StageInputs):
    """prepare_world."""

    world: WorldConfig


class WarmStartInputs(StageInputs):
    """warm_start: of the policy, what makes the base model, and nothing of what is trained later."""

    world: str = knob("world.name")
    world_date: datetime.date | None = knob("world.settings.standing_date")
    source: str = knob("policy.source")
    revision: str | None = knob("policy.revision")
    context_length: int | None = knob("policy.context_length")
    chat: ChatSettings = knob("policy.chat")
    warm_start: WarmStart | None = knob("policy.warm_start")
    dtype: Dtype = knob("policy.dtype")
    device: str = knob("policy.device")
    cpu_threads: int | None = knob("policy.cpu_threads")
    recited_world: Annotated[str, UNVERSIONED] = knob("dag.recited_world")
    """DVC sees a change of it in what the stage depends on."""
    played: Annotated[WorldConfig | None, IfRecited] = knob("world")
    """The world whose solutions are recited; None: its kind has scripted play, or there is no warm start."""
    limits: Annotated[AgentLimits | None, IfRecited] = knob("collection.limits")

    @property
    def base(self) -> PolicyConfig:
        """The model that is trained, in float32."""
        return PolicyConfig(
            source=self.source,
            revision=self.revision,
            context_length=self.context_length,
            device=self.device,
            cpu_threads=self.cpu_threads,
        )


class BasePolicyInputs(StageInputs):
    """prepare_policy."""

    seed: int
    world: str = knob("world.name")
    world_date: datetime.date | None = knob("world.settings.standing_date")
    policy: PolicyConfig


class MemoryInputs(StageInputs):
    """All that the memory of learner and engine depends on (tasks/core/capacity/memory.py)."""

    policy: PolicyConfig
    engine: EngineConfig
    limits: AgentLimits = knob("collection.limits")
    objective: ObjectiveName = knob("update.objective")
    entropy_bonus: IsPositive = knob("update.loss.entropy_coefficient")
    tokens_per_pack: int = knob("update.tokens_per_pack")
    logprob_chunk: int = knob("update.logprob_chunk")
    fold_adapter: bool = knob("update.fold_adapter")
    activation_checkpointing: bool = knob("update.activation_checkpointing")
    distributed: DistributedConfig = knob("update.distributed")
    critic: IsGiven = knob("update.critic")


class PreflightInputs(MemoryInputs):
    """preflight: no other knob of the update but those that memory depends on."""

    trains: IsPositive = knob("iterations")
    kl_penalty: IsPositive = knob("update.loss.kl_coefficient")
    preferred_to: PreferenceReference = knob("update.preference.reference")

    @property
    def needs_reference(self) -> bool:
        """As UpdateConfig.needs_reference."""
        return needs_reference(self.kl_penalty, self.objective, self.preferred_to)


class TaskFilterInputs(StageInputs):
    """filter_tasks."""

    world: WorldConfig
    tasks: TaskFilterConfig


class EngineInputs(StageInputs):
    """The engine that samples, and how it is reached."""

    engine: EngineConfig


class PlayInputs(EngineInputs):
    """All stages that play rollouts."""

    seed: int
    world: WorldConfig
    policy: PolicyConfig
    max_concurrent_episodes: Annotated[int, UNVERSIONED] = knob("collection.max_concurrent_episodes")
    shards: Annotated[Shards, UNVERSIONED] = knob("collection.shards")
    """As `max_concurrent_episodes`, no byte's matter where an engine computes in process on a CPU. Elsewhere the clock
    decides some of them anyway."""
    world_retries: int = knob("collection.world_retries")
    limits: AgentLimits = knob("collection.limits")
    judge_unfinished: bool = knob("collection.judge_unfinished")
    trains: Annotated[IsPositive, UNVERSIONED] = knob("iterations")
    memory: Annotated[MemoryInputs, UNVERSIONED] = knob("root")
    """Decides, with `trains`, whether own servers and the update are on a device together, and no byte of rollouts."""


class SamplingInputs(PlayInputs):
    """Inputs of the stages that sample for training."""

    previous: Previous = knob("dag.previous")
    tasks_per_iteration: int = knob("collection.tasks_per_iteration")
    task_drawing: TaskDrawing = knob("collection.task_drawing")
    temperature: float = knob("collection.temperature")


class CollectionInputs(SamplingInputs):
    """collect_rollouts."""

    rollouts_per_task: int = knob("collection.rollouts_per_task")
    temperatures: Temperatures = knob("collection.temperatures")
    demonstrations: bool = knob("collection.demonstrations")
    turn_progress: bool = knob("collection.turn_progress")
    early_stop: EarlyStop | None = knob("collection.early_stop")


class SearchInputs(SamplingInputs):
    """search_trees."""

    tree: TreeConfig | None = knob("collection.tree")


class PairInputs(StageInputs):
    """pair_turns."""

    advantages: AdvantageConfig


class AdvantageInputs(PairInputs):
    """filter_advantages."""

    seed: int


class UpdateInputs(StageInputs):
    """update_policy."""

    previous: Previous = knob("dag.previous")
    seed: int
    policy: PolicyConfig
    update: UpdateConfig
    information: InformationConfig = knob("monitor.information")
    engine: str = knob("engine.name")
    temperature: float = knob("collection.temperature")
    temperatures: Temperatures = knob("collection.temperatures")
    demonstrations: bool = knob("collection.demonstrations")


class EvaluationInputs(PlayInputs):
    """evaluate_policy."""

    denylist: tuple[str, ...] = knob("tasks.denylist")
    evaluation: EvaluationConfig


class SelectionInputs(StageInputs):
    """select_checkpoint."""

    seed: int
    evaluated: list[str] = knob("dag.evaluated")


class ScoringInputs(PlayInputs):
    """score."""

    scoring: ScoringConfig
    dev_limits: ChangedLimits = knob("evaluation.limits")

    @property
    def test_limits(self) -> AgentLimits:
        """The test budget; the training budget is `limits`."""
        return self.scoring.limits.of(self.dev_limits.of(self.limits))

    @property
    def plays_again(self) -> bool:
        """Whether the training budget is asked for and is another one than the test budget."""
        return self.scoring.at_training_budget and self.test_limits != self.limits


class RescoringInputs(EvaluationInputs, ScoringInputs):
    """No stage: `loopline score`, which plays any split as its stage would."""

    previous: Previous = knob("dag.previous")
    evaluated: list[str] = knob("dag.evaluated")


class CurveInputs(StageInputs):
    """tabulate_curves."""

    iterations: int
    evaluated: list[str] = knob("dag.evaluated")
