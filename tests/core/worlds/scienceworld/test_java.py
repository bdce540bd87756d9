"""No Java: one error with the remedy."""

from pathlib import Path

import pytest

from tasks.core.environments import EnvironmentUnavailable
from tasks.core.worlds.scienceworld.environment import java_executable


def test_without_java_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    with pytest.raises(EnvironmentUnavailable, match="Install Java 17 or newer") as said:
        java_executable(tmp_path)
    assert not list(tmp_path.glob("java-*")), said


def test_a_java_that_only_says_where_to_get_one_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "java"
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(EnvironmentUnavailable, match="this machine has none"):
        java_executable(tmp_path)
