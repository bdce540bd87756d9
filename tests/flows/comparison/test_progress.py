"""The progress of a study: a line for each run that begins or ends."""

from pathlib import Path

import pytest

from flows.comparison.plan import RunPlan
from flows.comparison.running import RUNNING, Place, Progress


def test_every_change_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of four had ended before."""
    place = Place(RunPlan("loop", 0, "a_study_with_a_very_long_name_of_its_own-loop-s0", {}, ""), tmp_path)
    progress = Progress(4, 1)
    for state in (RUNNING, "done", RUNNING, "failed"):
        progress.tell(place, state)
    assert capsys.readouterr().err.splitlines() == [
        f"{place.plan.experiment}: {line}"
        for line in (
            "running; 1 of 4 runs, no estimate yet",
            "done; 2 of 4 runs, about 0 min left",
            "running; 2 of 4 runs, about 0 min left",
            "failed; 3 of 4 runs, about 0 min left",
        )
    ]
