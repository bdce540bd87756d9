"""The registry of the pipeline's stages: the boxes of dvc.yaml as Python knows them. Imports no stage body."""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.interfaces.stage import StageContext

Body = Callable[[StageContext], None]


class UnknownStage(ValueError):  # noqa: N818 - the field's word
    """No stage, or no key of a stage, has this name; the message lists those that exist."""


@dataclass(frozen=True)
class Stage:
    """One box of the DAG: a DVC stage and a Prefect task of the same name."""

    name: str
    body: str
    """`module:function`, imported when the stage runs, so that no stage pays for another one's imports."""
    params: tuple[str, ...] = ()
    """What it reads of params.yaml, as dotted names. A change of any other value does not run it again."""
    each: Literal["", "iteration", "evaluated", "split"] = ""
    """What it is run for each of; "" for a stage that runs once."""
    retries: int = 0
    """How often Prefect runs it again after a failure: where engines and worlds, which can break, take part."""
    plays: bool = False
    """Whether it plays rollouts, which other processes and machines can do."""

    def keys(self, params: Params) -> tuple[str, ...]:
        """The keys it is run for, in order; ("",) for a stage that runs once."""
        match self.each:
            case "":
                return ("",)
            case "iteration":
                return tuple(params.previous)
            case "evaluated":
                return tuple(params.evaluated)
            case "split":
                return TEST_SPLITS

    @property
    def sections(self) -> frozenset[str]:
        """The top-level names of params.yaml that it reads."""
        return frozenset(name.partition(".")[0] for name in self.params)

    @property
    def module(self) -> str:
        return self.body.partition(":")[0]

    def load(self) -> Body:
        """Import the body."""
        module, _, function = self.body.partition(":")
        body: Body = getattr(importlib.import_module(module), function)
        return body


_ENGINE = ("engine.vllm.context_length", "engine.vllm.arguments")
"""What of the servers' settings changes what they sample; where they are and how many does not."""
_PLAYING = (
    "collection.engine",
    "collection.chat_api.request",
    "collection.limits",
    "collection.max_concurrent_episodes",
    "collection.shards",
    "collection.world_retries",
    *_ENGINE,
)
"""Settings of the engine and the agent loop that evaluation and scoring share with collection."""
_ALL_PARAMS = tuple(Params.model_fields)

STAGES = (
    Stage("version_stages", "flows.dag.versions:version_stages", _ALL_PARAMS),
    Stage("prepare_world", "tasks.preparation.world:prepare_world", ("world",)),
    Stage("prepare_policy", "tasks.preparation.policy:prepare_policy", ("seed", "policy")),
    Stage(
        "preflight",
        "tasks.preflight.stage:preflight",
        (
            "seed",
            "iterations",
            "policy",
            "collection.engine",
            "collection.limits",
            "collection.temperature",
            "engine.vllm.context_length",
            "update",
        ),
    ),
    Stage("filter_tasks", "tasks.task_filtering.stage:filter_tasks", ("world", "tasks")),
    Stage(
        "collect_rollouts",
        "tasks.rollout_collection.stage:collect_rollouts",
        ("seed", "world", "policy", "collection", *_ENGINE),
        each="iteration",
        retries=2,
        plays=True,
    ),
    Stage("filter_advantages", "tasks.advantage_filtering.stage:filter_advantages", ("advantages",), each="iteration"),
    Stage(
        "update_policy",
        "tasks.policy_update.stage:update_policy",
        ("seed", "policy", "collection.temperature", "update"),
        each="iteration",
    ),
    Stage(
        "evaluate_policy",
        "tasks.evaluation.dev_evaluation:evaluate_policy",
        ("seed", "world", "policy", "tasks.denylist", *_PLAYING, "evaluation"),
        each="evaluated",
        retries=2,
        plays=True,
    ),
    Stage("select_checkpoint", "tasks.evaluation.checkpoint_selection:select_checkpoint", ("evaluated",)),
    Stage(
        "score",
        "tasks.evaluation.scoring:score",
        ("seed", "world", "policy", *_PLAYING, "evaluation.limits", "scoring"),
        each="split",
        retries=2,
        plays=True,
    ),
    Stage("tabulate_curves", "tasks.report.learning_curves:tabulate_curves", ("iterations", "evaluated")),
    Stage("report", "tasks.report.stage:report", _ALL_PARAMS),
    Stage("record_lineage", "tasks.lineage.stage:record_lineage", _ALL_PARAMS, retries=2),
)


def find_stage(name: str) -> Stage:
    """The stage called `name`. Raises UnknownStage."""
    for stage in STAGES:
        if stage.name == name:
            return stage
    raise UnknownStage(f"unknown stage {name!r}; the stages are: {', '.join(stage.name for stage in STAGES)}")


def check_key(stage: Stage, key: str, params: Params) -> None:
    """Raises UnknownStage when `stage` is not run for `key` under these params."""
    keys = stage.keys(params)
    if key in keys:
        return
    if keys == ("",):
        raise UnknownStage(f"{stage.name} takes no key, but was given {key!r}")
    given = f"unknown key {key!r}" if key else "a key is missing"
    raise UnknownStage(f"{stage.name}: {given}; it is run for: {_shortened(keys)}")


def stage_label(name: str, key: str) -> str:
    """What DVC and Prefect call one run of a stage: "score@test_normal"."""
    return f"{name}@{key}" if key else name


def _shortened(keys: Iterable[str]) -> str:
    shown = list(keys)
    return ", ".join(shown if len(shown) <= 8 else [*shown[:3], "...", shown[-1]])
