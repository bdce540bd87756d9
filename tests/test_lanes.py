"""Which lanes CI runs: the files that a lane's tests reach (.ci/lanes.py)."""

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci/lanes.py"))


@pytest.mark.parametrize(
    ("lane", "reached"),
    [
        ("appworld", "tasks/core/worlds/appworld/kind.py"),
        ("vllm", "tasks/core/engines/vllm/engine.py"),
        ("hosts", "tasks/core/learner/learner.py"),
        ("whole_runs", "flows/cli/__init__.py"),
        ("ranks", ".ci/constraints.txt"),
        ("services", "params.yaml"),
        ("program", "docs/own_agent/letters/letters.py"),
    ],
)
def test_a_lane_reaches_what_its_tests_run(script: dict[str, Any], lane: str, reached: str) -> None:
    assert ROOT / reached in script["lane_files"](lane)


@pytest.mark.parametrize(
    ("lane", "not_reached"),
    [
        ("vllm", "tasks/core/worlds/appworld/kind.py"),
        ("appworld", "tasks/core/worlds/tau2/kind.py"),
        ("tau2", "tests/core/engines/vllm/test_engine.py"),
        ("whole_runs", "README.md"),
    ],
)
def test_a_change_elsewhere_does_not_run_a_lane(script: dict[str, Any], lane: str, not_reached: str) -> None:
    assert ROOT / not_reached not in script["lane_files"](lane)


def test_a_lane_that_passed_is_due_again_after_a_change(
    script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = script["main"]
    monkeypatch.setitem(main.__globals__, "PASSED", tmp_path / "passed.json")
    assert list(main("due", "tau2", "peers")) == ["tau2", "peers"]
    list(main("passed", "tau2"))
    assert list(main("due", "tau2", "peers")) == ["peers"]
    changed = tmp_path / "passed.json"
    changed.write_text(changed.read_text().replace('"tau2": "', '"tau2": "other'))
    assert list(main("due", "tau2")) == ["tau2"]
