from pathlib import Path

import pytest

from flows.configure import main as write_profile
from flows.configure import profile_names
from flows.plan import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_can_be_planned_and_fits_where_it_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", name]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{name}: ")
    wanted = ("requests", "USD") if name == "openai" else ("learner, per device", "FLOPs", "in all", "disk")
    assert all(word in printed for word in wanted)


@pytest.mark.parametrize("hardware", ["h100", "h200", "a100"])
def test_the_paper_on_two_nodes(hardware: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", "paper", "--hardware", hardware, "--gpus", "16"]) == 0
    assert "16 x" in capsys.readouterr().out


def test_too_little_hardware_is_said_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", "paper", "--hardware", "h100", "--gpus", "1"]) == 1
    assert "does not fit: the learner needs" in capsys.readouterr().out


def test_bad_input_is_one_message(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, message in (
        (["--profile", "nope"], "unknown profile 'nope'"),
        (["--profile", "default", "--set", "policy.source=some/model"], "the sizes of some/model are not known"),
        (["--profile", "default", "--set", "update.epoch=1"], "update.epoch"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_without_a_profile_params_yaml_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    assert "params.yaml: missing" in capsys.readouterr().err
    write_profile(["gpu_small"])
    assert main(["--hardware", "a100"]) == 0
    assert "params.yaml: Qwen/Qwen2.5-1.5B-Instruct in appworld, on 1 x A100" in capsys.readouterr().out
