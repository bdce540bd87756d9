"""A trained policy as a folder: what it holds, its proof, and what refuses it."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import metadata_load
from safetensors.torch import load_file, save_file

from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.exports.exported_policy import ExportedPolicy, licence_of
from tasks.core.exports.logits_proof import NotProven, conversation, prove, reference
from tasks.core.exports.model_folder import CannotMerge, export_model
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.policies.delivery_probe import untrained_probe, write_probe
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy
from tasks.core.policies.policy_weights import PolicyWeights
from tasks.core.records.files import ArtifactError
from tests.finished_run import scores
from tests.tiny_models import tiny_qwen2

pytestmark = pytest.mark.whole_runs

SHIPPED = Path(__file__).parents[3] / "data" / "base_policies" / "pocket"
TALKS = [conversation([258, *range(first, first + 30)], [place > 10 for place in range(31)]) for first in (1, 60, 200)]
KNOBS = {"world.name": "pocketworld", "world.seed": "2502", "policy.revision": "null", "policy.warm_start": "null"}


def trained(folder: Path, spread: float = 0.05, **settings: Any) -> ExportedPolicy:
    """Return a policy whose trained part is drawn with this spread."""
    config = PolicyConfig(source="data/base_policies/pocket", device="cpu", lora=LoraSettings(rank=4), **settings)
    policy = trainable_policy(load_base_model(SHIPPED, config), config, None, 0)
    generator = torch.Generator().manual_seed(1)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, spread, generator=generator)
        elif config.trained == "full":
            weight.data += spread * weight.data.std() * torch.randn(weight.shape, generator=generator)
    save_policy(policy, folder)
    return ExportedPolicy("a-model", "i002", SHIPPED, folder, config, KNOBS, [scores("test_normal")], "apache-2.0")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> ExportedPolicy:
    return trained(tmp_path_factory.mktemp("trained") / "policy")


def test_the_folder_is_the_policy_and_not_its_base(policy: ExportedPolicy, tmp_path: Path) -> None:
    proof = export_model(policy, tmp_path / "out", TALKS, adapter=False)
    assert proof.from_policy.rms <= proof.limit < proof.from_base.rms
    assert proof.from_policy.same_choice == 1 and set(proof.packages) == {"torch", "transformers"}
    assert json.loads((tmp_path / "out" / "proof.json").read_text())["positions"] == proof.positions == 60
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (SHIPPED / name).read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {"out"}, "nothing is left beside it"
    require_products(policy, tmp_path / "out")
    require_card(tmp_path / "out")


def test_another_base_of_the_same_shape_is_refused_by_the_adapters_record(
    policy: ExportedPolicy, tmp_path: Path
) -> None:
    shutil.copytree(policy.checkpoint, tmp_path / "policy")
    moved, model = replace(policy, checkpoint=tmp_path / "policy"), load_base_model(SHIPPED, policy.config)
    PolicyWeights(model).load(moved.checkpoint)
    write_probe(
        moved.checkpoint, untrained_probe(model, load_chat_format(SHIPPED), 259, policy.config, moved.checkpoint)
    )
    assert export_model(moved, tmp_path / "out", TALKS, adapter=False).positions == 60
    other = SHIPPED.with_name("pocket_chained")
    with pytest.raises(ArtifactError, match=r"policy: was trained on another base model than .*pocket_chained"):
        export_model(replace(moved, base=other), tmp_path / "none", TALKS, adapter=False)
    assert not (tmp_path / "none").exists()


def require_products(policy: ExportedPolicy, folder: Path) -> None:
    """Each adapted matrix has the scaled product added, and no other tensor changes."""
    before, after = load_file(SHIPPED / "model.safetensors"), load_file(folder / "model.safetensors")
    factors = load_file(policy.checkpoint / "adapter_model.safetensors")
    assert before.keys() == after.keys()
    for name, weight in before.items():
        module = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{module}.lora_A.weight" in factors:
            scale = policy.config.lora.alpha / 4
            product = factors[f"{module}.lora_B.weight"] @ factors[f"{module}.lora_A.weight"]
            torch.testing.assert_close(after[name] - weight, scale * product, rtol=0, atol=1e-6)
        else:
            assert torch.equal(after[name], weight), name


def require_card(folder: Path) -> None:
    """The card has the hub's metadata, and intervals."""
    found: Mapping[str, Any] = metadata_load(folder / "README.md") or {}
    assert found["license"] == "apache-2.0" and found["library_name"] == "transformers"
    (result,) = found["model-index"][0]["results"]
    assert {metric["type"]: metric["value"] for metric in result["metrics"]} == {"tgc": 70.0, "sgc": 50.0}
    card = (folder / "README.md").read_text()
    # Student's t of one degree of freedom: 12.706 standard errors of 2, 2 and 3
    assert "| test_normal, 6 tasks x 2 | TGC | 30.0 [4.6, 55.4] | 70.0 [44.6, 95.4] | +40.0 [+1.9, +78.1] |" in card
    assert "vllm serve FOLDER" in card


@pytest.mark.parametrize("settings", [{"dtype": "bfloat16"}, {"trained": "full"}])
def test_other_dtypes_and_full_weights_are_proven_too(settings: dict[str, Any], tmp_path: Path) -> None:
    proof = export_model(trained(tmp_path / "policy", **settings), tmp_path / "out", TALKS, adapter=False)
    dtype = settings.get("dtype", "float32")
    assert proof.dtype == dtype and proof.from_policy.rms <= proof.limit < proof.from_base.rms
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == dtype
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {getattr(torch, dtype)}


def test_the_adapter_alone_is_proven_and_names_its_base_on_the_hub(policy: ExportedPolicy, tmp_path: Path) -> None:
    commit = "7ae557604adf67be50417f59c2c2f167def9a775"
    config = policy.config.model_copy(update={"source": "Qwen/Qwen2.5-0.5B-Instruct", "revision": commit})
    of_hub = replace(policy, config=config, knobs=KNOBS | {"policy.revision": commit})
    proof = export_model(of_hub, tmp_path / "out", TALKS, adapter=True)
    assert proof.from_policy.rms <= proof.limit < proof.from_base.rms and "peft" in proof.packages
    assert not (tmp_path / "out" / "model.safetensors").exists()
    saved = (policy.checkpoint / "adapter_model.safetensors").read_bytes()
    assert (tmp_path / "out" / "adapter_model.safetensors").read_bytes() == saved
    found = metadata_load(tmp_path / "out" / "README.md") or {}
    assert (found["base_model"], found["base_model_relation"]) == ("Qwen/Qwen2.5-0.5B-Instruct", "adapter")
    settings = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (settings["base_model_name_or_path"], settings["revision"]) == ("Qwen/Qwen2.5-0.5B-Instruct", commit)


def test_a_folder_with_the_bases_weights_is_not_proven(policy: ExportedPolicy) -> None:
    expected = reference(SHIPPED, policy.checkpoint, policy.config, TALKS)[0]
    with pytest.raises(NotProven, match="its logits are not the policy's: they differ by"):
        prove(SHIPPED, None, policy.config, TALKS, expected)


def test_what_rounding_would_swallow_is_exported_as_an_adapter_only(tmp_path: Path) -> None:
    weak = trained(tmp_path / "policy", spread=1e-5, dtype="bfloat16")
    with pytest.raises(NotProven, match=r"can't be told from the base model's.*`--adapter`"):
        export_model(weak, tmp_path / "out", TALKS, adapter=False)
    assert {file.name for file in tmp_path.iterdir()} == {"policy"}


def test_an_untrained_policy_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(NotProven, match="the policy is the base model itself"):
        export_model(trained(tmp_path / "policy", spread=0.0), tmp_path / "out", TALKS, adapter=False)


def copy_of_base(folder: Path, **changes: Any) -> Path:
    """Copy the base policy, with changes of its config.json."""
    shutil.copytree(SHIPPED, folder)
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def refused(policy: ExportedPolicy, folder: Path, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as found:
        export_model(policy, folder / "out", TALKS, adapter=False)
    assert "\n" not in str(found.value)
    assert not [file for file in folder.iterdir() if "out" in file.name]


def test_a_quantised_base_is_refused_by_its_method(policy: ExportedPolicy, tmp_path: Path) -> None:
    base = copy_of_base(tmp_path / "base", quantization_config={"quant_method": "gptq", "bits": 4})
    refused(replace(policy, base=base), tmp_path, CannotMerge, r"quantised \(gptq\).*`--adapter`")


def test_an_adapter_on_tied_weights_is_not_proven_when_it_is_merged(policy: ExportedPolicy, tmp_path: Path) -> None:
    shutil.copytree(policy.checkpoint, tmp_path / "policy")
    head, draw = "base_model.model.lm_head", torch.Generator().manual_seed(0)
    tensors = {
        f"{head}.lora_A.weight": torch.randn(4, 128, generator=draw),
        f"{head}.lora_B.weight": torch.randn(871, 4, generator=draw),
    }
    save_file(tensors, tmp_path / "policy" / "adapter_model.safetensors")
    file = tmp_path / "policy" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"target_modules": ["lm_head"]}))
    tied = replace(policy, checkpoint=tmp_path / "policy")
    refused(tied, tmp_path, NotProven, r"its logits are not the policy's: .*`--adapter` merges nothing")


def test_an_adapter_of_another_base_is_refused_by_tensor(policy: ExportedPolicy, tmp_path: Path) -> None:
    tiny_qwen2().save_pretrained(tmp_path / "narrow")
    refused(replace(policy, base=tmp_path / "narrow"), tmp_path, ValueError, r"the base model needs \(4, ")
    flat = tiny_qwen2(num_hidden_layers=1, hidden_size=128, intermediate_size=256)
    flat.save_pretrained(tmp_path / "flat")
    refused(
        replace(policy, base=tmp_path / "flat"), tmp_path, ValueError, "the base model has no module model.layers.1"
    )


def test_a_folder_that_holds_something_stays_as_it_is(policy: ExportedPolicy, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    with pytest.raises(ArtifactError, match="exists and is not an empty folder"):
        export_model(policy, tmp_path / "out", TALKS, adapter=False)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_base_names_its_licence_in_its_card(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    assert licence_of(tmp_path, "someone/model", tmp_path) == "mit"
    assert licence_of(SHIPPED, "data/base_policies/pocket", tmp_path) == "apache-2.0"
    assert licence_of(SHIPPED, "pip:nonesuch==1", tmp_path) is None
