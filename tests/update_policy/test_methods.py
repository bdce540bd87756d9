"""One update of every kind of objective through the stage's files: it trains, repeats itself, and continues."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.core.config.params import Params
from tasks.core.learner.packing import Rollout
from tasks.core.records.files import ArtifactError, digest, read_json
from tasks.core.records.schemas import TRAINING_BATCH
from tasks.core.records.tables import write_rows
from tasks.core.records.training import Metrics
from tests.update_policy.test_update_policy import make_params, prepare, row, run

MakeRollouts = Callable[..., list[Rollout]]
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "supervised": ({"objective": "supervised"}, {"estimator": "success"}),
    "preference": ({"objective": "preference"}, {"pair_gap": 0.1}),
    "critic": ({"critic": {"warmup_iterations": 1}}, {"estimator": "episode_return", "min_absolute_advantage": 0.0}),
    "turns": ({}, {}),
}


def params_of(kind: str) -> Params:
    update, advantages = KINDS[kind]
    return make_params(advantages=advantages, **update)


def labelled(kind: str, rollouts: list[Rollout]) -> list[dict[str, Any]]:
    """Return rows of a training batch with labels of this kind."""
    labels: dict[str, Callable[[int], dict[str, Any]]] = {
        "supervised": lambda number: {"advantage": 1.0},
        "preference": lambda number: {"advantage": 1.0 - 2 * (number % 2), "pair": number // 2},
        "critic": lambda number: {"advantage": number % 2 / 2},
        "turns": lambda number: {"turn_advantages": [0.5, -0.5, 1.0]},
    }
    return [row(number, rollout) | labels[kind](number) for number, rollout in enumerate(rollouts)]


def two_iterations(kind: str, root: Path, base: Path, make_rollouts: MakeRollouts) -> tuple[list[Metrics], list[str]]:
    params, batches = params_of(kind), {key: make_rollouts(8, seed) for seed, key in enumerate(("i001", "i002"))}
    layout = prepare(root, base, params, batches)
    found = []
    for key, rollouts in batches.items():
        write_rows(layout.training_batch(key), labelled(kind, rollouts), TRAINING_BATCH)
        found.append(run(layout, params, key))
    return found, [digest(layout.policy(key)) for key in ("i000", "i001", "i002")]


@pytest.mark.parametrize("kind", KINDS)
def test_two_iterations_train_and_repeat_themselves(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path, kind: str
) -> None:
    metrics, digests = two_iterations(kind, tmp_path / "one", base, make_rollouts)
    assert len(set(digests)) == 3
    assert two_iterations(kind, tmp_path / "other", base, make_rollouts)[1] == digests
    assert metrics[1].optimizer_steps == 4 and metrics[1].loss is not None and np.isfinite(metrics[1].loss)
    assert (metrics[1].value_loss is not None) == (kind == "critic")


def test_a_critic_is_saved_with_its_policy_which_waits_for_it(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    metrics, _ = two_iterations("critic", tmp_path, base, make_rollouts)
    assert [found.total_optimizer_steps for found in metrics] == [0, 4]
    folder = tmp_path / "data" / "iterations"
    assert read_json(folder / "i002" / "policy" / "critic.json") == {"optimizer_steps": 8, "updates": 2}
    assert (folder / "i002" / "policy" / "critic.safetensors").exists()
    adapters = [folder / key / "policy" / "adapter_model.safetensors" for key in ("i000", "i001", "i002")]
    assert adapters[0].read_bytes() == adapters[1].read_bytes() != adapters[2].read_bytes()


def test_an_iteration_trains_on_the_batch_that_params_yaml_names(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    params = make_params()
    reused = {"i002": params.dag.previous["i002"].model_copy(update={"batch": "i001"})}
    dag = params.dag.model_copy(update={"previous": params.dag.previous | reused})
    params = params.model_copy(update={"dag": dag})
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(6, 1)})
    assert run(layout, params, "i001").total_optimizer_steps == 4
    assert run(layout, params, "i002").total_optimizer_steps == 8


def test_half_a_pair_is_named_with_its_file(base: Path, make_rollouts: MakeRollouts, tmp_path: Path) -> None:
    params, rollouts = params_of("preference"), make_rollouts(4)
    layout = prepare(tmp_path, base, params, {"i001": rollouts})
    rows = labelled("preference", [replace(rollout, name="") for rollout in rollouts])
    with pytest.raises(ArtifactError, match=r"training_batch\.parquet: row 2, column pair: pair 1 is not one positive"):
        write_rows(layout.training_batch("i001"), rows[:3], TRAINING_BATCH)
