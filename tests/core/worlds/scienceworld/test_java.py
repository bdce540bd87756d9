"""No Java, or one that is too old: one error with the remedy."""

from pathlib import Path

import pytest

from tasks.core.interpreters import InterpreterUnavailable
from tasks.core.worlds.scienceworld.interpreter import java_executable


def test_without_java_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_packages(tmp_path, monkeypatch)
    with pytest.raises(InterpreterUnavailable, match="Install Java 17 or newer") as said:
        java_executable(tmp_path)
    assert not list(tmp_path.glob("java-*")), said


def test_a_java_that_only_says_where_to_get_one_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "java"
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    without_packages(tmp_path, monkeypatch)
    with pytest.raises(InterpreterUnavailable, match="this machine has none"):
        java_executable(tmp_path)


@pytest.mark.parametrize(("version", "said"), [("1.8.0_392", "Java 8"), ("11.0.2", "Java 11"), ("16-ea", "Java 16")])
def test_an_older_java_is_refused_by_its_version(
    version: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = tmp_path / "java"
    told = ("Picked up JAVA_TOOL_OPTIONS: -Dx=1", f'openjdk version "{version}"')
    stub.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in told))
    stub.chmod(0o755)
    without_packages(tmp_path, monkeypatch)
    with pytest.raises(InterpreterUnavailable, match=rf"needs Java 17, and .*{stub} is {said}\. Install Java 17"):
        java_executable(tmp_path)


@pytest.mark.parametrize("version", ["17.0.15", "17", "21-ea", "25.0.1"])
def test_java_17_or_newer_is_taken(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "java"
    stub.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    stub.chmod(0o755)
    without_packages(tmp_path, monkeypatch)
    assert java_executable(tmp_path) == stub


def without_packages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH is the folder `path`, and no index has a package."""
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(path / "cache"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
