"""The last lines of a run (flows/run_summary.py), whose figures and names are those of the artifacts and of MLflow."""

import pytest

from flows.run_summary import print_run_summary, summary_lines
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import StageContext
from tasks.core.processes.shown_work import duration
from tasks.core.records.documents import write_document
from tasks.core.records.layout import Layout
from tasks.core.records.training import AdvantageSummary
from tasks.record_lineage import record_lineage
from tests.finished_run import scores


def test_a_finished_run_has_a_summary_of_ten_lines(layout: Layout, params: Params) -> None:
    record_lineage(StageContext(layout, params))
    lines = [*summary_lines(layout, params, 3725.0)]
    assert len(lines) == 10 and max(map(len, lines[:6])) <= 79
    first = scores("test_normal")
    assert lines[2].split()[:2] == ["test_normal,", "TGC"]
    assert f"{first.base_tgc:.1f} ± {first.base_tgc_se:.1f}" in lines[2]
    assert f"{first.tgc_gain:+.1f} ± {first.tgc_gain_se:.1f}" in lines[2]
    assert lines[6].startswith("report   data/report/index.html")
    assert lines[7].startswith(f"MLflow   run {params.world.name}-")
    assert lines[8].endswith("/1") and lines[9] == "time     1 h 2 min, this command"


def test_a_run_whose_groups_were_all_equal_says_that_nothing_was_learned(layout: Layout, params: Params) -> None:
    """It ended green with scores of 0.0, as a world does that the default policy cannot speak."""
    record_lineage(StageContext(layout, params))
    keys = list(params.dag.collected)
    for key in keys:
        summary = AdvantageSummary(
            mean_return=0.0,
            group_return_std=0.0,
            rollouts=6,
            finished_rollouts=6,
            kept_rollouts=0,
            end_reasons={"completed": 6},
        )
        write_document(layout.advantage_summary(key), summary)
    warning = [*summary_lines(layout, params, 1.0)][-2]
    assert warning.startswith(
        "warning  nothing was learned: in every group all rollouts had the same return (mean 0.00)"
    )
    write_document(layout.advantage_summary(keys[0]), summary.model_copy(update={"group_return_std": 0.1}))
    assert not any(line.startswith("warning") for line in summary_lines(layout, params, 1.0))


def test_a_run_that_is_not_finished_has_no_summary(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    print_run_summary(layout.root)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (312.0, "5 min 12 s"), (90_000.0, "25 h 0 min")]
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
