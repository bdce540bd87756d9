from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tasks.core.config.params import ParamsError, parse_params
from tasks.core.config.stage_inputs import BasePolicyInputs
from tasks.core.engines.vllm.probe_records import LocalModel
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer, new_model
from tasks.core.policies.checkpoint_files import copy_verified, policy_digest, write_digests
from tasks.core.policies.delivery_probe import read_probe
from tasks.core.records.files import ArtifactError, digest, read_json
from tasks.core.records.layout import Layout
from tasks.prepare_policy import prepare_policy

SIZES = TinyQwen2(width=32, heads=1, feed_forward=32, context_length=64)
SOURCE = "bases/tiny"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project root with a base policy in it."""
    tokenizer = build_tokenizer(["pay", "Anna"], SIZES.context_length)
    model = new_model(SIZES, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, seed=0)
    model.save_pretrained(tmp_path / SOURCE)
    tokenizer.save_pretrained(tmp_path / SOURCE)
    write_digests(tmp_path / SOURCE)
    return tmp_path


def context(root: Path, seed: int = 0, **policy: object) -> StageContext[BasePolicyInputs]:
    settings = {"source": SOURCE, "device": "cpu", **policy}
    content = {"seed": seed, "policy": settings}
    return StageContext(Layout(root), BasePolicyInputs.of(parse_params({**content, "iterations": 1}, "test")))


def artifacts(root: Path) -> list[Path]:
    return sorted((root / "data").rglob("*")) if (root / "data").exists() else []


@pytest.mark.parametrize("trained", ["lora", "full"])
def test_a_folder_is_copied_and_gets_an_initial_checkpoint(root: Path, trained: str) -> None:
    prepare_policy(context(root, trained=trained))
    assert digest(root / "data/policy") == digest(root / SOURCE)
    assert policy_digest(root / "data/iterations/i000/policy")


@pytest.mark.parametrize("trained", ["lora", "full"])
def test_the_initial_checkpoint_has_a_record_that_says_what_the_base_says(root: Path, trained: str) -> None:
    inputs = context(root, trained=trained)
    prepare_policy(inputs)
    probe = read_probe(root / "data/iterations/i000/policy")
    assert probe is not None and not probe.trained_on
    assert all(one.base == one.logprobs for one in probe.lasting)
    assert max(probe.lasting[0].token_ids) < 256
    local = LocalModel(root / "data/policy", inputs.inputs.policy)
    for one in probe.lasting:
        ((read,),) = local.readings([None], [one.token_ids])
        assert one.logprobs == pytest.approx(read, abs=1e-5)


def test_the_initial_checkpoint_depends_on_the_seed_alone(root: Path) -> None:
    digests = []
    for seed in (0, 0, 1):
        prepare_policy(context(root, seed))
        digests.append(digest(root / "data/iterations/i000/policy"))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("name", "change", "rule"),
    [
        ("model.norm.weight", None, "is missing"),
        ("model.norm.weight", lambda norm: norm[:-1], r"has shape \[31\], config.json says \[32\]"),
        ("model.layers.1.mlp.up_proj.weight", lambda up: up * float("nan"), "is not finite"),
    ],
)
def test_half_a_model_is_refused_by_its_tensor(root: Path, name: str, change: Any, rule: str) -> None:
    file = root / SOURCE / "model.safetensors"
    tensors = load_file(file)
    one = tensors.pop(name)
    save_file(tensors if change is None else {**tensors, name: change(one)}, file, {"format": "pt"})
    write_digests(root / SOURCE)
    with pytest.raises(ArtifactError, match=f"tensor {name} {rule}"):
        prepare_policy(context(root))
    assert not (root / "data/policy").exists()


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_an_altered_file_is_named_and_nothing_is_written(root: Path, name: str) -> None:
    damage(root / SOURCE / name)
    with pytest.raises(ArtifactError, match=rf"{name}: altered"):
        prepare_policy(context(root))
    assert not [path for path in artifacts(root) if path.is_file()]


def test_a_truncated_base_without_digests_is_refused(root: Path) -> None:
    (root / SOURCE / "digests.json").unlink()
    damage(root / SOURCE / "model.safetensors")
    with pytest.raises(ArtifactError, match="not a base model"):
        prepare_policy(context(root))


def test_a_failure_leaves_the_earlier_policy_whole(root: Path) -> None:
    prepare_policy(context(root))
    before = digest(root / "data")
    (root / SOURCE / "tokenizer.json").unlink()
    with pytest.raises(ArtifactError, match=r"tokenizer.json: missing"):
        prepare_policy(context(root))
    assert digest(root / "data") == before


def test_a_shorter_context_is_the_base_policys_own_from_then_on(root: Path) -> None:
    prepare_policy(context(root, context_length=40))
    assert read_json(root / "data/policy/config.json")["max_position_embeddings"] == 40
    copy_verified(root / "data/policy", root)
    with pytest.raises(ParamsError, match="65, but the base model has 64 positions"):
        prepare_policy(context(root, context_length=65))


def test_an_unknown_source_is_refused(root: Path) -> None:
    with pytest.raises(ArtifactError, match="neither a folder, a GGUF file, `recipe`, `pip:PACKAGE==VERSION` nor a"):
        prepare_policy(context(root, source="data/base_policies/none"))


def test_a_folder_that_reads_like_a_pinned_hub_id_is_refused(root: Path) -> None:
    """Otherwise DVC would not watch its files."""
    (root / "models").mkdir()
    (root / SOURCE).rename(root / "models" / "x")
    with pytest.raises(ParamsError, match=r"policy\.revision: models/x is a folder .*; set it to null"):
        prepare_policy(context(root, source="models/x", revision="a" * 40))


def test_a_hub_id_must_be_pinned(root: Path) -> None:
    with pytest.raises(ParamsError, match="needs the commit"):
        prepare_policy(context(root, source="Qwen/Qwen2.5-32B-Instruct", revision="main"))


def test_an_unreachable_hub_is_one_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ArtifactError, match=r"Qwen/Qwen2.5-32B-Instruct@0123.* could not be fetched"):
        prepare_policy(context(root, source="Qwen/Qwen2.5-32B-Instruct", revision="0123456789" * 4))
    assert not [path for path in artifacts(root) if path.is_file()]
