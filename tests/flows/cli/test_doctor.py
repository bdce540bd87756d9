"""What `loopline doctor` finds: everything that is needed here, and obstacles of parameters that cannot run."""

import socket
from pathlib import Path

import pytest

from flows.cli import doctor
from flows.cli.app import main
from flows.cli.doctor import findings
from flows.params_file import write_params
from flows.profile_stack import stacked
from tasks.core.config.params import parse_params

ROOT = Path(__file__).resolve().parents[3]


def obstacles(content: dict[str, object], root: Path = ROOT) -> list[str]:
    return [*doctor._obstacles(root, parse_params(content, "test"))]


def test_the_default_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [*findings(ROOT)]
    assert {each.subject for each in found} >= {"Python", "git", "torch", "cores", "memory", "disk", "GPU", "DVC"}
    assert [each for each in found if each.state == "lacks"] == []


def test_parameters_that_cannot_run_here_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    default = stacked(["default"])
    assert obstacles(default) == []
    (on_gpu,) = obstacles(default | {"policy": {**default.get("policy", {}), "device": "cuda"}})
    assert on_gpu == "policy.device: cuda, and torch finds no GPU here"
    (unknown,) = obstacles(default | {"policy": {**default.get("policy", {}), "device": "tpu"}})
    assert unknown.startswith("policy.device: tpu: Expected one of cpu, cuda")
    (key,) = obstacles(stacked(["openai"]))
    assert key == "engine.chat_api.traffic.key_variable: the environment variable OPENAI_API_KEY is not set"
    assert any(
        line.startswith("policy.source: somewhere/else is no folder")
        for line in obstacles(default | {"policy": {**default.get("policy", {}), "source": "somewhere/else"}})
    )


def test_what_does_not_fit_into_memory_is_listed_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    params = parse_params(stacked(["paper"]), "test")
    lines = [*doctor._too_large(ROOT, params, on_gpu=False)]
    assert any(line.startswith("the learner needs ") for line in lines)


def test_something_missing_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_params(tmp_path / "params.yaml", stacked(["default"]))
    assert main(["doctor"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("lacks  DVC")]
    assert "no .dvc folder here" in line


def test_a_port_that_is_taken_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", {port: "a server"})
        (found,) = doctor._ports()
    assert (found.state, found.text) == ("note", "taken (a server)")
