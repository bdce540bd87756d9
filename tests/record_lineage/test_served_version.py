"""A version of the real tiny policy: pulled and used as its card instructs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy, trained_tensors
from tasks.core.registry.run_registry import open_registry
from tasks.record_lineage.recording import Pipeline, record_pipeline
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
