"""The limits in use compared with the recorded runs that they were fitted on."""

import hashlib
from pathlib import Path

from tasks.core.collapse import rules as module
from tasks.core.collapse.rules import Thresholds, collapse_rules, warnings_of
from tests.benchmarks.recorded_runs import COUNTED_FROM, RECORDED, read_runs


def test_limits_are_of_the_runs_that_are_kept_and_none_of_those_fitted_on_breaks_one() -> None:
    text = Path(module.__file__).with_name("thresholds.json").read_text(encoding="utf-8")
    assert Thresholds.model_validate_json(text).recorded_runs == hashlib.sha256(RECORDED.read_bytes()).hexdigest()
    runs = [run for run in read_runs() if run.seed < COUNTED_FROM]
    assert len({(run.profile, run.kind, run.seed) for run in runs}) == len(runs)
    for run in runs:
        assert (warnings_of(run.history, collapse_rules()) == []) == (run.kind == "healthy"), run[:3]
