"""Reads of the base model: no stage opens its weights more often than a single load does."""

import gc
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tasks.core.config.params import parse_params
from tasks.core.config.stage_inputs import BasePolicyInputs
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.learner import learner, training
from tasks.core.learner.objective import StepStats
from tasks.core.learner.packing import Rollout
from tasks.core.policies.loading import load_base_model
from tasks.core.records.layout import Layout
from tasks.prepare_policy import prepare_policy
from tests.opened_files import counted_opens
from tests.update_policy.test_update_policy import make_params, prepare, run

SHIPPED = Path(__file__).parents[2] / "data" / "base_policies" / "pocket"
MakeRollouts = Callable[..., list[Rollout]]


@pytest.fixture(scope="module")
def one_load(base: Path) -> int:
    """Return how often one load of the model opens the weights file."""
    with counted_opens(base / "model.safetensors") as opens:
        load_base_model(base, make_params().policy)
    assert opens.count
    return opens.count


@pytest.mark.parametrize("trained", ["lora", "full"])
def test_an_update_loads_the_base_model_once_and_the_next_one_in_the_process_not_at_all(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path, one_load: int, trained: str
) -> None:
    """A KL term needs the base model next to a fully trained policy: at every update, once."""
    params, cache = make_params(trained, loss={"kl_coefficient": 0.01}), ProcessCache()
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(4), "i002": make_rollouts(4)})
    counts = []
    for key in ("i001", "i002"):
        with counted_opens(layout.base_policy / "model.safetensors") as opens:
            run(layout, params, key, cache)
        counts.append(opens.count)
    assert counts == ([one_load, 0] if trained == "lora" else [one_load, one_load])


def test_the_base_of_a_fully_trained_policy_is_freed_before_the_first_optimizer_step(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base is as large as the policy, and its layers refer to themselves. No garbage collection comes by chance."""
    params = make_params("full", loss={"kl_coefficient": 0.01}, activation_checkpointing=True)
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(4)})
    load, step, loaded, alive = training.load_prepared, learner.optimizer_step, list[Any](), list[list[bool]]()

    def load_and_watch(*arguments: Any, **settings: Any) -> nn.Module:
        model = load(*arguments, **settings)
        loaded.append([weakref.ref(weight) for weight in model.parameters()])
        return model

    def look_and_step(*arguments: Any) -> StepStats:
        alive.append([any(weight() is not None for weight in weights) for weights in loaded])
        return step(*arguments)

    monkeypatch.setattr(training, "load_prepared", load_and_watch)
    monkeypatch.setattr(learner, "optimizer_step", look_and_step)
    gc.disable()
    try:
        run(layout, params, "i001")
    finally:
        gc.enable()
    assert alive[0] == [True, False]


def test_an_engine_reads_the_base_model_once_whatever_it_samples_from(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path, one_load: int
) -> None:
    params = make_params()
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(4)})
    run(layout, params, "i001")
    with counted_opens(layout.base_policy / "model.safetensors") as opens:
        engine = TransformersEngine(load_base_model(layout.base_policy, params.policy))
        for policy in (None, layout.policy("i000"), layout.policy("i001"), None):
            engine.load_adapter(policy)
    assert opens.count == one_load


def test_preparing_a_policy_reads_its_source_once(tmp_path: Path, one_load: int) -> None:
    """The source is copied and checked in one pass."""
    shutil.copytree(SHIPPED, tmp_path / "source")
    content = {"seed": 0, "iterations": 1}
    policy = {"source": "source", "device": "cpu"}
    inputs = BasePolicyInputs.of(parse_params({**content, "policy": policy}, "test"))
    with counted_opens(tmp_path / "source" / "model.safetensors") as opens:
        prepare_policy(StageContext(Layout(tmp_path), inputs))
    assert opens.count == 1
