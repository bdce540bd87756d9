"""The command line of machines that join. Their work: test_ranks.py."""

from pathlib import Path

import pytest

from flows.workers.worker_node import main


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["--ranks", "2"], 2)])
def test_an_option_is_no_folder(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == code
    assert "usage: python -m flows.workers.worker_node" in "".join(capsys.readouterr())


def test_a_folder_without_a_project_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert f"{tmp_path / 'params.yaml'}: missing" in capsys.readouterr().err
