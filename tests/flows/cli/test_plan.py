import re
from pathlib import Path

import pytest

from flows.cli.app import main
from flows.params_file import params_of
from flows.profile_stack import profile_names
from tasks.core.records.schemas import ROLLOUTS
from tasks.core.records.tables import write_rows
from tests.finished_run import played_row

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_can_be_planned_and_fits_where_it_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", name]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{name}: ")
    wanted = ("requests", "USD") if name == "openai" else ("FLOPs", "in all", "disk")
    trains = params_of(name).iterations > 0
    assert all(word in printed for word in (*wanted, *(["learner, per device"] if trains else [])))


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
    parts = [float(re.search(rf"{name}, per device +([\d.]+) GB", printed)[1]) for name in ("learner", "engine")]  # type: ignore[index]
    needed = max(parts) if "take turns" in printed else sum(parts)
    found = re.fullmatch(r"fits: ([\d.]+) of (24|80) GB", lines[-1])
    assert found is not None and float(found[1]) == pytest.approx(needed, abs=0.11)
    assert (found[2] == "24") is (hardware == "rtx4090")


@pytest.mark.parametrize("hardware", ["h100", "h200", "a100"])
def test_the_paper_on_two_nodes(hardware: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "paper", "--hardware", hardware, "--gpus", "16"]) == 0
    printed = capsys.readouterr().out
    assert "16 x" in printed and "note:" not in printed


def test_other_devices_than_the_run_would_use_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "gpu_80gb", "--gpus", "8"])
    assert "these parameters start 1 of 8 ranks; set update.distributed" in capsys.readouterr().out


def test_too_little_hardware_is_reported_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "paper", "--hardware", "h100", "--gpus", "1"]) == 1
    assert "does not fit: the learner needs" in capsys.readouterr().out


def test_bad_input_is_one_message(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, message in (
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


def test_a_knob_is_set_on_params_yaml_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["configure", "default"])
    (tmp_path / "data").symlink_to(ROOT / "data")
    assert main(["plan", "--set", "iterations=4", "--set", "evaluation.every=2"]) == 0
    assert "144 x 4 collections, 60 x 3 on dev" in capsys.readouterr().out


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


def test_a_pilot_proposes_the_number_of_rollouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Forty tasks at 3 of 6: about half each, so 4 rollouts give 80% a signal, and 6 use up 240 in 40 groups."""
    path = tmp_path / "rollouts.parquet"
    tokens = {"token_ids": [1, 2], "policy_mask": [False, True], "turn_index": [-1, 0], "engine_logprobs": [0.0, 0.0]}
    more = {"difficulty": 1, **tokens}
    rows = [
        played_row(f"t{task:02d}_1", f"t{task:02d}", "train", float(number % 2), number, **more, staleness=0)
        for task in range(40)
        for number in range(6)
    ]
    write_rows(path, rows, ROLLOUTS)
    assert main(["plan", "paper", "--gpus", "16", "--pilot", str(path), "--wanted-share", "0.8"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "40 tasks; an iteration of 240 rollouts" in printed
    assert "a signal in 80% 4 rollouts a task" in printed
    assert "most groups 6 rollouts a task" in printed


@pytest.mark.parametrize(("content", "fault"), [(None, "missing"), (b"what a user has", "damaged parquet")])
def test_a_file_that_is_no_pilot_is_left_to_its_owner(
    content: bytes | None, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is no artifact of this pipeline, so no message tells to delete it, or that a stage would write it."""
    path = tmp_path / "pilot.parquet"
    if content is not None:
        path.write_bytes(content)
    assert main(["plan", "paper", "--pilot", str(path)]) == 2
    printed = capsys.readouterr().err
    assert f"pilot.parquet: {fault}" in printed and "a pilot must be a run's table of rollouts" in printed
    assert "dvc repro" not in printed and (content is None or path.read_bytes() == content)


def test_rollouts_that_are_collected_once_are_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for every in (1, 4, 0):
        assert main(["plan", "default", "--set", f"collection.every={every}", "--set", "iterations=8"]) == 0
        said[every] = capsys.readouterr().out
    assert "x 8 collections" in said[1] and "x 2 collections" in said[4] and "x 1 collections" in said[0]
