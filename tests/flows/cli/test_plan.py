import json
import re
from pathlib import Path

import pytest

from flows.cli.app import main
from flows.params_file import params_of
from flows.profile_stack import profile_names

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", [name for name in profile_names() if name != "program"])
def test_every_profile_can_be_planned_and_fits_where_it_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", name]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{name}: ")
    wanted = ("requests", "USD") if name == "openai" else ("FLOPs", "seconds", "disk")
    trains = params_of(name).iterations > 0
    assert all(word in printed for word in (*wanted, *(["learner device bytes"] if trains else [])))


@pytest.mark.parametrize("hardware", [None, "rtx4090"])
def test_a_plan_fits_80_columns_and_ends_with_what_fits(
    hardware: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the lines of the plan: learner and engine stay loaded side by side on 80 GB, and take turns on 24."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["plan", "gpu_small", *(["--hardware", hardware] if hardware else [])]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert all(len(line) <= 80 or " " not in line.strip() for line in lines)
    words = " ".join(printed.split())
    patterns = (r"optimizer .*?total ([\d.]+) GB", r"with caches ([\d.]+) GB")
    parts = [float(re.search(pattern, words)[1]) for pattern in patterns]  # type: ignore[index]
    needed = max(parts) if "take turns" in printed else sum(parts)
    found = re.fullmatch(r"fits: ([\d.]+) of (24|80) GB", lines[-1])
    assert found is not None and float(found[1]) == pytest.approx(needed, abs=0.11)
    assert (found[2] == "24") is (hardware == "rtx4090")


@pytest.mark.parametrize("hardware", ["h100", "h200", "a100"])
def test_the_paper_fits_on_two_nodes_and_devices_that_a_run_would_not_use_are_noted(
    hardware: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "paper", "--hardware", hardware, "--gpus", "16"]) == 0
    printed = capsys.readouterr().out
    assert "16 x" in printed and "note:" not in printed
    main(["plan", "gpu_80gb", "--gpus", "8"])
    assert "these parameters start 1 of 8 ranks; set update.distributed" in capsys.readouterr().out


def test_too_little_hardware_is_reported_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "paper", "--hardware", "h100", "--gpus", "1"]) == 1
    assert "does not fit: the learner needs" in capsys.readouterr().out


def test_bad_input_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["program"], "program says nothing of its `task_counts`"),
        (["nope"], "no profile 'nope'"),
        (["default", "--set", "policy.source=some/model"], "the sizes of some/model are unknown"),
        (["default", "--set", "update.epoch=1"], "update.epoch"),
    ):
        assert main(["plan", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_without_a_profile_params_yaml_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan"]) == 2
    assert "params.yaml: missing" in capsys.readouterr().err
    main(["configure", "gpu_small"])
    assert main(["plan", "--hardware", "a100"]) == 0
    assert "params.yaml: Qwen/Qwen2.5-1.5B-Instruct in appworld, on 1 x A100" in capsys.readouterr().out
    main(["configure", "default"])
    (tmp_path / "data").symlink_to(ROOT / "data")
    assert main(["plan", "--set", "iterations=4", "--set", "evaluation.every=2"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "collected 144, on dev 60, to score 1,170, collections 4, evaluations 3" in printed


@pytest.mark.parametrize(
    ("device", "dtype", "hardware"),
    [
        ("cpu", "bfloat16", "CPU"),
        ("cuda:1", "float32", "H100"),
        ("auto", "float32", "CPU"),
        ("auto", "bfloat16", "H100"),
    ],
)
def test_the_policys_device_is_planned_for(
    device: str, dtype: str, hardware: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["plan", "default", "--set", f"policy.device={device}", "--set", f"policy.dtype={dtype}"])
    assert f", on 1 x {hardware}" in capsys.readouterr().out


def test_rollouts_that_are_collected_once_are_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for every in (1, 4, 0):
        assert main(["plan", "default", "--set", f"collection.every={every}", "--set", "iterations=8"]) == 0
        said[every] = capsys.readouterr().out
    assert "collections 8" in said[1] and "collections 2" in said[4] and "collections 1" in said[0]


def test_the_figures_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "paper", "--gpus", "1", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["profile"] == "paper" and "the learner needs" in found["does_not_fit"][0]
    assert found["learner_device_bytes"]["total"] == sum(list(found["learner_device_bytes"].values())[:-1])
    assert found["device_hours"] == round(found["seconds"]["run"] / 3600, 2)
