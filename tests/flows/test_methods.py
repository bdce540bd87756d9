"""Two iterations of a method of each kind in miniature, stage by stage from the world to the dev scores."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows.cli.app import main
from flows.dag.stages import STAGES
from flows.runners.plain_runner import PlainRunner
from tasks.core.config.params import load_params
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Evaluation
from tasks.core.records.training import AdvantageSummary, Metrics, Preflight
from tests.flows.tiny_project import ROOT

pytestmark = pytest.mark.whole_runs

Play = Callable[..., Layout]
NAMES = [stage.name for stage in STAGES]
UNTIL_DEV = [stage for stage in STAGES[1 : NAMES.index("select_checkpoint")] if stage.name != "preflight"]
TRAINING = NAMES[NAMES.index("collect_rollouts") : NAMES.index("select_checkpoint")]
SIZE = ("iterations=2", "evaluation.every=2", "collection.tasks_per_iteration=4")


@pytest.fixture(scope="module")
def cache() -> Iterator[ProcessCache]:
    held = ProcessCache()
    yield held
    held.close()


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: ProcessCache) -> Play:
    """Return a function that runs the stages of `drill` with a method on top, in DVC's order, in this process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "base_policies").symlink_to(ROOT / "data" / "base_policies")

    def played(method: str, *settings: str) -> Layout:
        assert main(["configure", "drill", method, *(f"--set={setting}" for setting in (*SIZE, *settings))]) == 0
        params = load_params(tmp_path / "params.yaml")
        tried = Preflight(positions=0, rollouts=0, ranks=1, passes="packed")
        write_document(Layout(tmp_path).preflight, tried)
        runs = [(stage, key) for stage in UNTIL_DEV for key in stage.keys(params)]
        runs.sort(key=lambda run: (run[0].name == "evaluate_policy", run[1] if run[0].name in TRAINING else ""))
        runner = PlainRunner(tmp_path, cache)
        runner.run("version_stages", "")
        for stage, key in runs:
            runner.run(stage.name, key)
        return Layout(tmp_path)

    return played


def metrics(layout: Layout) -> list[Metrics]:
    assert read_document(layout.evaluation("i002"), Evaluation).tgc >= 0
    return [read_document(layout.metrics(key), Metrics) for key in ("i001", "i002")]


def test_solutions_are_recited_once_and_learned_in_every_iteration(play: Play) -> None:
    layout = play("sft_gt")
    first, second = metrics(layout)
    rollouts = pq.read_table(layout.rollouts("i001"))
    assert set(rollouts["engine"].to_pylist()) == {"oracle"} and set(rollouts["success"].to_pylist()) == {True}
    assert not layout.rollouts("i002").exists()
    assert (first.staleness, second.staleness) == (0, 1)
    assert first.loss is not None and second.loss is not None and second.loss < first.loss
    assert set(pq.read_table(layout.evaluation_rollouts("i002"))["engine"].to_pylist()) != {"oracle"}


def test_pairs_are_made_and_preferred(play: Play) -> None:
    layout = play("dmpo")
    batch = pq.read_table(layout.training_batch("i001")).to_pylist()
    assert batch and len(batch) == 2 * len({row["pair"] for row in batch})
    first, _ = metrics(layout)
    assert first.optimizer_steps > 0


def test_turns_of_a_searched_tree_are_paired_and_preferred(play: Play) -> None:
    """The base policy searches once: the other iteration trains on the same pairs, and nothing is collected."""
    layout = play("dpo_mcts", "collection.tree.simulations=8")
    assert not layout.rollouts("i002").exists()
    played = {(row["task_id"], row["rollout_index"]): row for row in pq.read_table(layout.rollouts("i001")).to_pylist()}
    assert max(index for _, index in played) > 4
    batch = pq.read_table(layout.training_batch("i001")).to_pylist()
    assert batch and len(batch) == 2 * len({row["pair"] for row in batch})
    for better, worse in zip(batch[::2], batch[1::2], strict=True):
        assert (better["advantage"], worse["advantage"]) == (1, -1) and better["return"] > worse["return"] + 0.1
        start = better["policy_mask"].index(True)
        assert better["token_ids"][:start] == worse["token_ids"][:start]
        assert better["token_ids"][start:] != worse["token_ids"][start:]
        for row in (better, worse):
            whole, length = played[row["task_id"], row["rollout_index"]], len(row["token_ids"])
            assert row["token_ids"] == whole["token_ids"][:length] and all(row["policy_mask"][start:])
            assert row["engine_logprobs"][start:] == whole["engine_logprobs"][start:length]
    first, second = metrics(layout)
    assert first.optimizer_steps > 0 and second.staleness == 1
    assert first.loss is not None and second.loss is not None and second.loss < first.loss


def test_a_critic_is_trained_before_its_policy(play: Play) -> None:
    layout = play("ppo_bilevel")
    first, second = metrics(layout)
    assert first.value_loss is not None and second.value_loss is not None
    assert (first.total_optimizer_steps, second.total_optimizer_steps) == (0, 0)
    assert (layout.policy("i002") / "critic.safetensors").exists()


def test_starpo_s_trains_policy_and_critic_from_the_first_iteration_on_the_mass_of_the_variance(play: Play) -> None:
    layout = play("starpo_s_ppo", "advantages.variance_share_of=mass", "advantages.top_variance_share=0.5")
    first, _ = metrics(layout)
    assert first.value_loss is not None and first.optimizer_steps > 0
    summary = read_document(layout.advantage_summary("i001"), AdvantageSummary).model_dump()
    assert summary["dropped_low_variance_group"] > 0
    assert summary["kept_rollouts"] == summary["finished_rollouts"] - summary["dropped_low_variance_group"]


def test_progress_is_measured_after_every_turn_and_credited_to_it(play: Play) -> None:
    layout = play("loop_turn_credit")
    for row in pq.read_table(layout.rollouts("i001")).to_pylist():
        assert len(row["turn_progress"]) == len(row["turns"])
        assert row["end_reason"] != "completed" or row["turn_progress"][-1] == row["return"]
    batch = pq.read_table(layout.training_batch("i001")).to_pylist()
    assert all(len(row["turn_advantages"]) == 1 + max(row["turn_index"]) for row in batch)
    assert any(len(set(row["turn_advantages"])) > 1 for row in batch)
    assert metrics(layout)[0].optimizer_steps > 0


def test_temperatures_rotate_over_a_tasks_rollouts(play: Play) -> None:
    layout = play("rft")
    rollouts = pq.read_table(layout.rollouts("i001"), columns=["rollout_index", "success"]).to_pylist()
    assert {row["rollout_index"] for row in rollouts} == set(range(20))
    kept = pq.read_table(layout.training_batch("i001"))
    assert set(kept["advantage"].to_pylist()) <= {1.0}
    assert metrics(layout)[1].staleness == 1
