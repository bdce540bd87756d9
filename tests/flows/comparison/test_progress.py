"""The progress of a study, as lines and as a table."""

import io
import sys

import pytest

from flows.comparison.plan import RunPlan
from flows.comparison.progress import DONE, FAILED, RUNNING, WAITING, Progress

PLANS = [RunPlan(method, seed, f"a_study-{method}-s{seed}", {}, "") for seed in (0, 1) for method in ("loop", "grpo")]
NAMES = [plan.experiment for plan in PLANS]


def states(*found: str) -> dict[str, str]:
    return dict(zip(NAMES, found, strict=True))


def iterations(*done: int) -> dict[str, tuple[int, int]]:
    return {name: (count, 8) for name, count in zip(NAMES, done, strict=True)}


def test_away_from_a_terminal_every_change_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(PLANS) as progress:
        progress.show(states(RUNNING, WAITING, WAITING, WAITING), iterations(0, 0, 0, 0))
        progress.show(states(RUNNING, WAITING, WAITING, WAITING), iterations(5, 0, 0, 0))
        progress.show(states(DONE, FAILED, RUNNING, WAITING), iterations(8, 3, 0, 0))
    assert capsys.readouterr().err.splitlines() == [
        f"{NAMES[0]}: running; 0 of 4 runs, 0 of 32 iterations, no estimate yet",
        f"{NAMES[0]}: done; 2 of 4 runs, 11 of 32 iterations, about 0 min left",
        f"{NAMES[1]}: failed; 2 of 4 runs, 11 of 32 iterations, about 0 min left",
        f"{NAMES[2]}: running; 2 of 4 runs, 11 of 32 iterations, about 0 min left",
    ]


def test_long_names_break_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    plan = RunPlan("loop_per_trajectory", 0, "a_study_with_a_very_long_name_of_its_own-loop_per_trajectory-s0", {}, "")
    Progress([plan]).show({plan.experiment: RUNNING}, {plan.experiment: (0, 8)})
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_terminal_has_a_table_of_methods_and_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(PLANS) as progress:
        progress.show(states(RUNNING, DONE, WAITING, FAILED), iterations(5, 8, 0, 1))
    rows = [line.split() for line in shown.getvalue().splitlines()]
    cells = [[word for word in row if word not in "\u2502\u2503"] for row in rows]
    assert ["loop", "5/8", "waiting"] in cells and ["grpo", "done", "failed"] in cells
    assert "2 of 4 runs, 14 of 32" in shown.getvalue()
