"""The command line of machines that join. Their work: test_ranks.py, and tests/hosts."""

import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError

from flows.cli.app import main
from flows.workers.join_channel import SECRET_VARIABLE, Offer, made_secret, read_secret
from flows.workers.needed_folders import NeededFile, NeededFolder
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.learner.update_job import UpdateJob
from tests.flows.tiny_project import ROOT
from tests.update_policy.test_update_policy import make_params


@pytest.mark.parametrize(("option", "code"), [("--help", 0), ("--ranks", 2)])
def test_an_option_is_no_folder(option: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["join", option]) == code
    assert "loopline join" in "".join(capsys.readouterr())


def test_a_machine_asks_for_a_place_before_it_imports_torch() -> None:
    """Importing torch and what the ranks need would be most of the time that joining takes."""
    code = "import sys, flows.cli.app, flows.workers.worker_node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "pandas"} & set(done.stdout.split())


def test_a_folder_is_no_place_to_meet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["join", str(tmp_path)]) == 2
    assert f"{tmp_path}: not HOST:PORT" in capsys.readouterr().err


def test_a_machine_without_a_secret_says_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["join", "localhost:29400"]) == 1
    file = tmp_path / "loopline" / "join_secret"
    assert f"{file}: missing; copy it from the pipeline's machine" in capsys.readouterr().err
    assert made_secret() == made_secret() == read_secret()
    assert file.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv(SECRET_VARIABLE, "another")
    assert read_secret() == "another"


def test_a_name_without_an_address_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "of these two")
    assert main(["join", "nowhere.invalid:29400"]) == 1
    assert "loopline join: nowhere.invalid: " in capsys.readouterr().err


def test_something_else_at_the_port_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "of these two")
    with http.server.HTTPServer(("localhost", 0), http.server.SimpleHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        assert main(["join", f"localhost:{other.server_port}"]) == 1
        other.shutdown()
    assert "something else than an update of loopline answers there (501)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "name", "sha256"),
    [
        ("/p/data", "../x", "a" * 64),
        ("/p/data", "/x", "a" * 64),
        ("/p/../x", "x", "a" * 64),
        ("/x", "x", "a" * 64),
        ("/p/data", "x", "../x"),
    ],
)
def test_an_offer_names_nothing_outside_of_the_project(path: str, name: str, sha256: str) -> None:
    job = UpdateJob(root=Path("/p"), key="i001", inputs=UpdateInputs.of(make_params()))
    fine = {"session": "s", "number": 1, "store_port": 1, "label": "x", "last": False, "job": job, "cache_bytes": 1}
    Offer(needs=(NeededFolder(Path("/p/data"), (NeededFile("a/x", "a" * 64),)),), **fine)
    with pytest.raises(ValidationError, match=r"outside of the project|not in the subpath|digest that is none"):
        Offer(needs=(NeededFolder(Path(path), (NeededFile(name, sha256),)),), **fine)
