"""The registry of the pipeline's stages: the boxes of dvc.yaml as Python knows them. Imports no stage body."""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tasks.core.config.params import Params
from tasks.core.config.section import Section
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.config.stage_inputs import (
    AdvantageInputs,
    BasePolicyInputs,
    CollectionInputs,
    CurveInputs,
    EvaluationInputs,
    PairInputs,
    PlayInputs,
    PreflightInputs,
    ScoringInputs,
    SearchInputs,
    SelectionInputs,
    StageInputs,
    TaskFilterInputs,
    UpdateInputs,
    WarmStartInputs,
    WorldInputs,
)
from tasks.core.interfaces.stage import StageContext

Body = Callable[[StageContext[Any]], None]


class UnknownStage(ValueError):  # noqa: N818 - the field's word
    """No stage, or no key of a stage, has this name; the message lists those that exist."""


@dataclass(frozen=True)
class Stage:
    """One box of the DAG: a DVC stage and a Prefect task of the same name."""

    name: str
    body: str
    """`module:function`, imported when the stage runs, so that no stage pays for another one's imports."""
    inputs: type[StageInputs] | None = None
    """Its part of params.yaml. A change of any other value does not run it again. None: it records all of them."""
    each: Literal["", "iteration", "collected", "searched", "evaluated", "split"] = ""
    """The list that it runs over; "" for a stage that runs once."""
    retries: int = 0
    """How often Prefect runs it again after a failure: where engines and worlds, which can break, take part."""

    makes: bool = False
    """Whether it makes a world's tasks, or scripted play, and does not only play: see `stage_code.MAKING`."""
    runs_recipe_alone: bool = False
    """Whether it runs the world only where `policy.source` is the world's recipe."""

    def keys(self, params: Params) -> tuple[str, ...]:
        """Return the keys it is run for, in order; ("",) for a stage that runs once."""
        match self.each:
            case "":
                return ("",)
            case "iteration":
                return tuple(params.dag.previous)
            case "collected":
                return tuple(params.dag.collected)
            case "searched":
                return tuple(params.dag.searched)
            case "evaluated":
                return tuple(params.dag.evaluated)
            case "split":
                return TEST_SPLITS

    @property
    def plays(self) -> bool:
        """Return whether it plays rollouts, which other processes and machines can do."""
        return self.inputs is not None and issubclass(self.inputs, PlayInputs)

    def inputs_of(self, params: Params) -> Section:
        """Return the inputs that its body is given."""
        return params if self.inputs is None else self.inputs.of(params)

    def knobs(self, params: Params) -> dict[str, Any]:
        """Return {dotted name: JSON value} of the knobs whose change runs it again."""
        if self.inputs is not None:
            return self.inputs.of(params).knobs()
        return {name: value for name, value in params.knobs(unversioned=True).items() if not name.startswith("dag.")}

    @property
    def module(self) -> str:
        return self.body.partition(":")[0]

    def load(self) -> Body:
        """Import the body."""
        module, _, function = self.body.partition(":")
        body: Body = getattr(importlib.import_module(module), function)
        return body


STAGES = (
    Stage("version_stages", "flows.dag.version_stages:version_stages"),
    Stage("prepare_world", "tasks.prepare_world:prepare_world", WorldInputs, makes=True),
    Stage("warm_start", "tasks.warm_start:warm_start", WarmStartInputs, makes=True),
    Stage(
        "prepare_policy", "tasks.prepare_policy:prepare_policy", BasePolicyInputs, makes=True, runs_recipe_alone=True
    ),
    Stage("preflight", "tasks.preflight:preflight", PreflightInputs),
    Stage("filter_tasks", "tasks.filter_tasks:filter_tasks", TaskFilterInputs),
    Stage(
        "evaluate_policy",
        "tasks.evaluate_policy:evaluate_policy",
        EvaluationInputs,
        each="evaluated",
        retries=2,
    ),
    Stage(
        "collect_rollouts",
        "tasks.collect_rollouts:collect_rollouts",
        CollectionInputs,
        each="collected",
        retries=2,
    ),
    Stage("filter_advantages", "tasks.filter_advantages:filter_advantages", AdvantageInputs, each="collected"),
    Stage("search_trees", "tasks.search_trees:search_trees", SearchInputs, each="searched", retries=2),
    Stage("pair_turns", "tasks.pair_turns:pair_turns", PairInputs, each="searched"),
    Stage("update_policy", "tasks.update_policy:update_policy", UpdateInputs, each="iteration"),
    Stage("select_checkpoint", "tasks.select_checkpoint:select_checkpoint", SelectionInputs),
    Stage("score", "tasks.score:score", ScoringInputs, each="split", retries=2),
    Stage("tabulate_curves", "tasks.tabulate_curves:tabulate_curves", CurveInputs),
    Stage("report", "tasks.report:report"),
    Stage("record_lineage", "tasks.record_lineage:record_lineage", retries=2),
)


def find_stage(name: str) -> Stage:
    """Return the stage called `name`. Raises UnknownStage."""
    for stage in STAGES:
        if stage.name == name:
            return stage
    raise UnknownStage(f"unknown stage {name!r}; the stages are: {', '.join(stage.name for stage in STAGES)}")


def check_key(stage: Stage, key: str, params: Params) -> None:
    """Raise UnknownStage where `stage` is not run for `key` under these params."""
    keys = stage.keys(params)
    if key in keys:
        return
    if keys == ("",):
        raise UnknownStage(f"{stage.name} takes no key, but was given {key!r}")
    given = f"unknown key {key!r}" if key else "a key is missing"
    raise UnknownStage(f"{stage.name}: {given}; it is run for: {_shortened(keys)}")


def stage_label(name: str, key: str) -> str:
    """Return the name of one run of a stage in DVC and Prefect: "score@test_normal"."""
    return f"{name}@{key}" if key else name


def _shortened(keys: Iterable[str]) -> str:
    shown = list(keys)
    return ", ".join(shown if len(shown) <= 8 else [*shown[:3], "...", shown[-1]])
