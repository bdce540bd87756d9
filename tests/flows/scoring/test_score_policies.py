"""`loopline score` on policies in folders: the stages' own rollouts, and checkpoints that fit or don't."""

from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import mlflow
import pytest

from flows.cli.app import main
from flows.dag.stages import STAGES
from flows.runners.plain_runner import PlainRunner
from tasks.core.config.params import load_params
from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.policies.delivery_probe import untrained_probe, write_probe
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy
from tasks.core.policies.policy_weights import PolicyWeights
from tasks.core.records.comparison import ModelScore
from tasks.core.records.documents import read_document
from tasks.core.records.files import read_json
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.tables import read_table
from tests.tiny_models import tiny_qwen2

pytestmark = pytest.mark.whole_runs

ROOT = Path(__file__).parents[3]
POCKET = "data/base_policies/pocket"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "base_policies").symlink_to(ROOT / "data" / "base_policies")
    assert main(["configure", "habits", "--set", "iterations=0", "--set", "evaluation.scenarios=1"]) == 0
    return tmp_path


def rows(path: Path) -> list[dict[str, Any]]:
    table = read_table(path, SCORED_ROLLOUTS).drop_columns(["policy"])
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_a_score_has_the_rollouts_of_the_stage(project: Path) -> None:
    params, cache = load_params(project / "params.yaml"), ProcessCache()
    for stage in STAGES:
        if stage.name in ("version_stages", "prepare_world", "prepare_policy", "evaluate_policy"):
            for key in stage.keys(params):
                PlainRunner(project, cache).run(stage.name, key)
    cache.close()
    assert main(["score", POCKET, "--split", "dev"]) == 0
    (folder,) = (project / "data" / "scored").glob("pocket-*")
    assert rows(folder / "rollouts.parquet") == rows(Layout(project).evaluation_rollouts("i000"))
    score = read_document(folder / "score.json", ModelScore)
    runs = mlflow.MlflowClient(f"sqlite:///{project}/mlflow.db")
    experiment = runs.get_experiment_by_name("loopline")
    assert experiment is not None
    (run,) = runs.search_runs([experiment.experiment_id])
    assert run.data.tags["score_key"] == score.key and run.info.status == "FINISHED"
    assert run.data.metrics["dev/tgc"] == score.scores.levels["all"].tgc
    assert main(["score", POCKET, "--split", "dev"]) == 0
    assert len(runs.search_runs([run.info.experiment_id])) == 1, "recorded once"


@pytest.fixture
def adapter(project: Path) -> Path:
    """An adapter of rank 2 on two modules, drawn, so that its policy is not the base."""
    config = PolicyConfig(lora=LoraSettings(rank=2, alpha=4, targets=("q_proj", "down_proj")))
    policy = trainable_policy(load_base_model(ROOT / POCKET, config), config, None, 0)
    for name, weight in policy.named_parameters():
        if ".lora_B." in name:
            weight.data.fill_(0.04)
    save_policy(policy, project / "adapter")
    return project / "adapter"


def test_an_adapter_is_played_with_its_own_sizes(project: Path, adapter: Path) -> None:
    assert main(["score", "adapter", POCKET, "--base", POCKET, "--split", "dev", "--into", "here"]) == 0
    ours, base = (rows(next(project.glob(f"here/{name}-*/rollouts.parquet"))) for name in ("adapter", "pocket"))
    assert [row["seed"] for row in ours] == [row["seed"] for row in base]
    assert [row["token_ids"] for row in ours] != [row["token_ids"] for row in base]
    assert next(project.glob("here/comparison-*/comparison.md")).read_text().count("TGC") > 1


def test_an_adapter_of_another_base_ends_in_one_line(
    project: Path, adapter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copytree(ROOT / POCKET, project / "other", ignore=ignore_patterns("digests.json"))
    vocabulary = read_json(ROOT / POCKET / "config.json")["vocab_size"]
    tiny_qwen2(vocab_size=vocabulary, max_position_embeddings=1024).save_pretrained(project / "other")
    assert main(["score", "adapter", "--base", "other", "--split", "dev"]) == 1
    error = capsys.readouterr().err.strip()
    assert "the base model needs" in error and "\n" not in error
    assert not (project / "data" / "scored").exists()


def test_an_adapter_of_another_base_of_the_same_shape_is_refused_by_its_record(
    project: Path, adapter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, chat = PolicyConfig(), load_chat_format(ROOT / POCKET)
    policy = load_base_model(ROOT / POCKET, config)
    PolicyWeights(policy).load(adapter)
    write_probe(adapter, untrained_probe(policy, chat, policy.config.vocab_size, config, adapter))
    assert main(["score", "adapter", "--base", f"{POCKET}_chained", "--split", "dev"]) == 1
    error = capsys.readouterr().err.strip()
    assert "adapter: was trained on another base model than" in error and "pocket_chained" in error
    assert "\n" not in error and not (project / "data" / "scored").exists()
    assert main(["score", "adapter", "--base", POCKET, "--split", "dev"]) == 0, "its own base"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--world", "nowhere"], "no world is called 'nowhere'"),
        (["--split", "nothing"], "there are train, dev, test_normal, test_challenge"),
        (["--world", "tau2", "--split", "nothing"], "test_challenge, test, base"),
        (["--set", "scoring.nothing=1"], "no such knob"),
        (["--set", "nothing"], "expected NAME=VALUE"),
    ],
)
def test_wrong_arguments_end_with_2(
    project: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", POCKET, *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error and "\n" not in error
    assert not (project / "data" / "scored").exists()
