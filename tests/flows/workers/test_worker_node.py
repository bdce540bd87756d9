"""The command line of machines that join. Their work: test_ranks.py."""

from pathlib import Path

import pytest

from flows.cli.app import main


@pytest.mark.parametrize(("option", "code"), [("--help", 0), ("--ranks", 2)])
def test_an_option_is_no_folder(option: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["join", option]) == code
    assert "loopline join" in "".join(capsys.readouterr())


def test_a_folder_without_a_project_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["join", str(tmp_path)]) == 1
    assert f"{tmp_path / 'params.yaml'}: missing" in capsys.readouterr().err
