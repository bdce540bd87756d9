import sys

import pytest

from tasks.core.processes import shown_work as module
from tasks.core.processes.shown_work import shown_work


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def lines(clock: Clock, capsys: pytest.CaptureFixture[str], each_s: float, count: int = 100) -> list[str]:
    assert not sys.stderr.isatty()
    with shown_work("test_normal, i000", count, "rollout") as work:
        for _ in range(count):
            clock.now += each_s
            work.advance(note="500 tok/s")
    return capsys.readouterr().err.splitlines()


def test_long_work_has_a_line_for_each_tenth_in_a_file(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    written = lines(clock, capsys, each_s=6.0)
    assert written[0] == "test_normal, i000: 5 of 100 rollouts, 30 s, about 9 min 30 s left", "within a minute"
    assert written[1] == "test_normal, i000: 10 of 100 rollouts, 1 min 0 s, about 9 min 0 s left"
    assert written[-1] == "test_normal, i000: 100 of 100 rollouts, 10 min 0 s"
    assert len(written) == 11


def test_short_work_has_none_and_quick_tenths_share_one(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(clock, capsys, each_s=0.05) == []
    assert len(lines(clock, capsys, each_s=0.3)) == 2, "30 s: at least 10 s between two"
    assert lines(clock, capsys, each_s=1.0, count=0) == []
