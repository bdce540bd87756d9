"""The stage warm_start on the embedded policy."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from flows.configure import params_of
from tasks.core.config.params import ParamsError
from tasks.core.config.stage_inputs import BasePolicyInputs, WarmStartInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import read_document
from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tasks.core.records.training import WarmStartRecord
from tasks.prepare_policy import prepare_policy
from tasks.warm_start import warm_start

POCKET = Path(__file__).parents[1] / "data/base_policies/pocket"
COURSE = (
    "{perfect_demonstrations: 3, perfect_steps: 2, imperfect_demonstrations: 3, imperfect_steps: 1, "
    "tokens_per_step: 200}"
)
SETTINGS = [f"policy.source={POCKET}", f"policy.warm_start={COURSE}", "policy.device=cpu"]


def run(root: Path, *settings: str) -> Layout:
    params = params_of("smoke", [*SETTINGS, *settings])
    warm_start(StageContext(Layout(root), WarmStartInputs.of(params)))
    return Layout(root)


def test_all_weights_of_the_base_are_trained_and_the_policy_begins_there(tmp_path: Path) -> None:
    layout = run(tmp_path)
    assert len(read_document(layout.warm_start_record, WarmStartRecord).losses) == 3
    before, after = (load_file(folder / "model.safetensors") for folder in (POCKET, layout.warm_started_base))
    assert before.keys() == after.keys()
    assert not any(before[name].equal(after[name]) for name in before)
    card = (layout.warm_started_base / "README.md").read_text()
    assert "trained on 3 perfect and 3 imperfect demonstrations of pocketworld" in card
    prepare_policy(StageContext(layout, BasePolicyInputs.of(params_of("smoke", SETTINGS))))
    assert digest(layout.base_policy) == digest(layout.warm_started_base)


def test_its_own_seed_alone_decides_the_bytes(tmp_path: Path) -> None:
    settings = {"a": (), "b": (), "c": ("seed=1",), "d": ("policy.warm_start.seed=1",)}
    found = [digest(run(tmp_path / name, *own).warm_start) for name, own in settings.items()]
    assert found[0] == found[1] == found[2] != found[3]


def test_bfloat16_is_written_as_such(tmp_path: Path) -> None:
    weights = load_file(run(tmp_path, "policy.dtype=bfloat16").warm_started_base / "model.safetensors")
    assert {str(tensor.dtype) for tensor in weights.values()} == {"torch.bfloat16"}


def test_without_a_warm_start_there_is_a_record_only(tmp_path: Path) -> None:
    layout = run(tmp_path, "policy.warm_start=null")
    assert [path.name for path in layout.warm_start.iterdir()] == ["warm_start.json"]
    assert read_document(layout.warm_start_record, WarmStartRecord).losses == ()


def test_a_world_without_demonstrations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"policy\.warm_start: appworld has no demonstrations; .* pocketworld"):
        run(tmp_path, "world.name=appworld")
    assert not Layout(tmp_path).warm_start.exists()
