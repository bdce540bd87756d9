"""The stages over the iterations of a run that collapses."""

from pathlib import Path
from typing import Any

import pytest

from flows.params_file import params_of
from tasks.begin_courses import begin_courses
from tasks.core.collapse.rules import read_warnings
from tasks.core.config.stage_inputs import CourseInputs, MonitorInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.monitoring import Course, TrainingStopped, require_going_on, watched
from tasks.core.records.training import EngineMismatch, PromptInformation, ResponseStats
from tasks.monitor_collapse import monitor_collapse
from tests.finished_run import metrics

KEYS = ("i001", "i002", "i003")


def watch(root: Path, entropies: list[float], *assignments: str, **changed: Any) -> Layout:
    layout = Layout(root)
    params = params_of("default", ["iterations=3", *assignments])
    begin_courses(StageContext(layout, CourseInputs.of(params)))
    for key, entropy in zip(KEYS, entropies, strict=True):
        write_document(layout.metrics(key), metrics(entropy=entropy, **changed))
        if key in params.dag.monitored:
            monitor_collapse(StageContext(layout, MonitorInputs.of(params), key))
    return layout


def test_warnings_are_read_from_the_metrics_of_all_iterations_so_far(tmp_path: Path) -> None:
    layout = watch(tmp_path, [1.0, 1.0, 1e-4])
    assert read_warnings(layout, "i000") == read_warnings(layout, "i002") == []
    ((rule, iteration, evidence),) = [(w.rule, w.iteration, w.evidence) for w in read_warnings(layout, "i003")]
    assert (rule, iteration) == ("entropy_fall", 3)
    assert evidence.startswith("entropy is 0.0001 (limit")
    layout.metrics("i002").unlink()
    with pytest.raises(ArtifactError, match=r"i002/metrics\.json"):
        read_warnings(layout, "i003")


def test_courses_of_a_run_without_an_action_are_all_there_before_it_and_change_nothing(tmp_path: Path) -> None:
    layout = watch(tmp_path, [1.0, 1.0, 1e-4])
    assert sorted(file.stem for file in layout.courses.iterdir()) == ["i000", *KEYS]
    assert [read_document(file, Course) for file in layout.courses.iterdir()] == [Course()] * 4


def test_until_a_warning_courses_are_the_same_with_an_action_as_without(tmp_path: Path) -> None:
    """Bytes and paths are the same: choosing an action in the middle of a run makes no earlier stage stale."""
    courses = [
        watch(tmp_path / action, [1.0, 1.0, 1e-4], f"monitor.action={action}").courses for action in ("none", "stop")
    ]
    for key in ("i000", *KEYS):
        without, acting = ((folder / f"{key}.json").read_bytes() for folder in courses)
        assert (without == acting) == (key != "i003")


def test_equal_metrics_give_equal_bytes_whatever_their_wall_clock_says(tmp_path: Path) -> None:
    acting = "monitor.action=discard_update"
    first, again = (watch(tmp_path / str(speed), [1.0] * 3, acting, tokens_per_s=speed) for speed in (1.0, 2.0))
    assert first.course("i002").read_bytes() == again.course("i002").read_bytes()


def test_a_stopped_run_gives_the_reason_and_how_to_score_it(tmp_path: Path) -> None:
    layout = watch(tmp_path, [1.0, 1.0, 1e-4], "monitor.action=stop")
    require_going_on(layout, "i002")
    with pytest.raises(TrainingStopped, match=r"stopped after i003 .*iteration 3: entropy_fall: .*--set iterations=3"):
        require_going_on(layout, "i003")


def test_the_watched_figures_of_an_update() -> None:
    responses = ResponseStats(length=50.0, repetition=0.25, distinct=0.75)
    information = PromptInformation(nats=1.0, share=0.5, prompts=8, responses=16)
    figures = watched(metrics(kl=0.2, responses=responses, prompt_information=information))
    assert figures.kl_per_token == pytest.approx(0.004)
    assert (figures.length, figures.repetition, figures.distinct) == (50.0, 0.25, 0.75)
    assert (figures.information, figures.mismatch) == (0.5, 0.0)
    off = EngineMismatch(mean=0.5, max=3.0, noise=1e-2, share_over_noise=0.4)
    fresh, stale = (watched(metrics(engine_mismatch=off, staleness=updates)).mismatch for updates in (0, 1))
    assert (fresh, stale) == (0.4, None)
    nothing = watched(metrics(kl=None, engine_mismatch=None))
    assert (nothing.kl_per_token, nothing.length, nothing.information, nothing.mismatch) == (None, None, None, None)
