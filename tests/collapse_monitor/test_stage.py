"""The stage over the iterations of a run that collapses."""

import logging
from pathlib import Path
from typing import Any

import pytest

from flows.configure import params_of
from tasks.collapse_monitor.stage import monitor_collapse
from tasks.core.config.stage_inputs import MonitorInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import PromptInformation, ResponseFigures, read_document, write_document
from tasks.core.records.layout import Layout
from tasks.core.records.monitoring import Course, Monitor, watched
from tasks.core.records.training_course import TrainingStopped, begin_course, require_going_on
from tests.finished_run import metrics

KEYS = ("i001", "i002", "i003")


def watch(root: Path, entropies: list[float], *assignments: str, **changed: Any) -> Layout:
    layout = Layout(root)
    begin_course(layout)
    params = params_of("default", assignments)
    for key, entropy in zip(KEYS, entropies, strict=False):
        write_document(layout.metrics(key), metrics(entropy=entropy, **changed))
        monitor_collapse(StageContext(layout, MonitorInputs.of(params), key))
    return layout


def test_a_warning_names_rule_iteration_and_evidence_in_log_and_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        layout = watch(tmp_path, [1.0, 1.0, 1e-4])
    monitor = read_document(layout.monitor("i003"), Monitor)
    assert [figures.entropy for figures in monitor.history] == [1.0, 1.0, 1e-4]
    ((rule, iteration),) = [(warning.rule, warning.iteration) for warning in monitor.of(3)]
    assert (rule, iteration) == ("entropy_fall", 3)
    assert "i003: sign of a collapse: entropy_fall: entropy is 0.0001 (limit" in caplog.text
    assert read_document(layout.course("i003"), Course) == Course()


def test_equal_metrics_give_equal_bytes_whatever_their_wall_clock_says(tmp_path: Path) -> None:
    first, again = (watch(tmp_path / str(speed), [1.0, 0.5], tokens_per_s=speed) for speed in (1.0, 2.0))
    for name in ("monitor", "course"):
        assert getattr(first, name)("i002").read_bytes() == getattr(again, name)("i002").read_bytes()


def test_a_run_that_is_to_stop_says_why_and_how_to_score_it(tmp_path: Path) -> None:
    layout = watch(tmp_path, [1.0, 1.0, 1e-4], "monitor.action=stop")
    require_going_on(layout, "i002")
    with pytest.raises(TrainingStopped, match=r"stopped after i003 .*iteration 3: entropy_fall: .*--set iterations=3"):
        require_going_on(layout, "i003")


def test_what_is_watched_of_an_update() -> None:
    responses = ResponseFigures(length=50.0, repetition=0.25, distinct=0.75)
    information = PromptInformation(nats=1.0, share=0.5, prompts=8, responses=16)
    figures = watched(metrics(kl=0.2, responses=responses, prompt_information=information))
    assert figures.kl_per_token == pytest.approx(0.004)
    assert (figures.length, figures.repetition, figures.distinct) == (50.0, 0.25, 0.75)
    assert (figures.information, figures.mismatch) == (0.5, 0.0)
    nothing = watched(metrics(kl=None, engine_mismatch=None))
    assert (nothing.kl_per_token, nothing.length, nothing.information, nothing.mismatch) == (None, None, None, None)
