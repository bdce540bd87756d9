"""The progress of a study: a line for each run that begins or ends."""

from pathlib import Path

import pytest

from flows.comparison.plan import RunPlan
from flows.comparison.running import Place, Progress


class Played(Place):
    """A run of eight iterations, of which some are done."""

    keys = tuple(f"i{number:03}" for number in range(1, 9))
    iterations = 0


def test_every_change_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop, grpo = (Played(RunPlan(method, 0, f"a-{method}-s0", {}, ""), tmp_path) for method in ("loop", "grpo"))
    progress = Progress([loop, grpo])
    progress.tell(loop, "running")
    for place, done in ((loop, 8), (grpo, 3)):
        object.__setattr__(place, "iterations", done)
    progress.tell(loop, "done")
    assert capsys.readouterr().err.splitlines() == [
        "a-loop-s0: running; 0 of 16 iterations, no estimate yet",
        "a-loop-s0: done; 11 of 16 iterations, about 0 min left",
    ]
