"""A version of the real tiny policy: pulled and used as its card instructs, and played anew."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import WorldInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy, trained_tensors
from tasks.core.records.files import ArtifactError
from tasks.core.registry.run_registry import compare_versions, open_registry
from tasks.prepare_world import prepare_world
from tasks.record_lineage.pipeline import Pipeline
from tasks.record_lineage.recording import record_pipeline
from tests.record_lineage.conftest import name_weights

pytestmark = pytest.mark.whole_runs

ROOT = Path(__file__).resolve().parents[2]
POCKET = ROOT / "data" / "base_policies" / "pocket"


@pytest.fixture
def recorded(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with the real base policy and a version whose adapter differs from the base."""
    import torch

    layout, params = pipeline.layout, pipeline.params
    shutil.rmtree(layout.base_policy)
    shutil.copytree(POCKET, layout.base_policy)
    policy = trainable_policy(load_base_model(POCKET, params.policy), params.policy, None, 0)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in trained_tensors(policy).items():
            if ".lora_B." in name:
                weight.copy_(torch.randn(weight.shape, generator=draw) * 0.05)
    save_policy(policy, layout.policy("i002"))
    name_weights(layout)
    record_pipeline(pipeline)
    return pipeline


def shown_code(card: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", card, re.DOTALL)


def test_the_lines_of_the_card_pull_a_version_and_generate_with_it(recorded: Pipeline, tmp_path: Path) -> None:
    """Use only the version's files, in a process that knows nothing of this project."""
    registry = open_registry(recorded.layout.root, recorded.params)
    with registry.files(registry.find("1"), "README.md") as file:
        card = file.read_text()
    pull, serve = shown_code(card, "bash")
    (load,) = shown_code(card, "python")
    assert len(load.splitlines()) == 4
    assert serve.startswith("vllm serve policy/base --enable-lora --max-lora-rank 8 ")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "use.py").write_text(load + USE)
    store = f"sqlite:///{recorded.layout.root / 'mlflow.db'}"
    environment = {"MLFLOW_TRACKING_URI": store, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": "/tmp"}
    for command in (["bash", "-ec", pull], [sys.executable, "use.py"]):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["transformers"] == said["pyfunc"] == said["peft"]
    assert said["transformers"] != said["base"]
    assert said["signature"] == ["prompt"]


USE = """
import json, sys

import mlflow
from peft import PeftModel

example = json.load(open("policy/input_example.json"))
prompt = tokenizer(example["prompt"][0], add_special_tokens=False, return_tensors="pt")

def turn(model):
    ids = model.generate(**prompt, max_new_tokens=24, do_sample=False)
    return tokenizer.decode(ids[0, prompt["input_ids"].shape[1]:], skip_special_tokens=True)

base = AutoModelForCausalLM.from_pretrained("policy/base")
said = {"transformers": turn(model), "base": turn(base), "peft": turn(PeftModel.from_pretrained(base, "policy"))}
served = mlflow.pyfunc.load_model("policy")
said["pyfunc"] = served.predict(example, params={"max_new_tokens": 24})[0]
said["signature"] = served.metadata.signature.inputs.input_names()
print(json.dumps(said))
"""


def few_scenarios(params: Params) -> Params:
    content = params.model_dump(mode="json")
    limits = {"max_turns": 4}
    content["scoring"] |= {"rollouts_per_task": 1, "scenarios": 2, "limits": limits}
    content["evaluation"] |= {"scenarios": 1, "limits": limits}
    return Params.model_validate(content)


def test_versions_are_played_anew_on_all_splits(recorded: Pipeline) -> None:
    layout, params = recorded.layout, few_scenarios(recorded.params)
    shutil.rmtree(layout.world)
    prepare_world(StageContext(layout, WorldInputs.of(params)))
    registry = open_registry(layout.root, params)
    found, folder = compare_versions(registry, ["1"], layout.root, params, rescore=True)
    assert found.rescored
    scores = found.versions[0].splits
    assert {split: score.levels["all"].scenarios for split, score in scores.items()} == {
        "dev": 1,
        "test_normal": 2,
        "test_challenge": 2,
    }
    assert len(list(folder.glob("1_*_rollouts.parquet"))) == 3
    again, _ = compare_versions(registry, ["1"], layout.root, params, rescore=True)
    assert again == found


def test_a_version_of_another_base_is_not_played(recorded: Pipeline) -> None:
    path = recorded.layout.root / "dvc.lock"
    tag = open_registry(recorded.layout.root, recorded.params).find("1").tags["dataset.data/policy"]
    path.write_text(path.read_text().replace(tag, "0" * 32 + ".dir"))
    with pytest.raises(ArtifactError, match=r"version 1 was trained from the base policy .*, but data/policy is 000"):
        registry = open_registry(recorded.layout.root, recorded.params)
        compare_versions(registry, ["1"], recorded.layout.root, recorded.params, rescore=True)
    assert not list(recorded.layout.comparisons.iterdir())
