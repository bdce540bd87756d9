"""Rules of a collapse on histories worked out by hand, their limits, and a run that they stop."""

import hashlib
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.params_file import params_of
from flows.runners.plain_runner import PlainRunner
from tasks.core.collapse import rules as module
from tasks.core.collapse.rules import (
    Rule,
    Thresholds,
    TrainingStopped,
    broken,
    collapse_rules,
    limit_of,
    new_warnings,
    read_warnings,
    warnings_of,
)
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import RunManifest
from tasks.core.records.training import EngineMismatch, PromptInformation, ResponseStats, WatchedStats, watched
from tests.benchmarks.recorded_runs import COUNTED_FROM, RECORDED, read_runs
from tests.finished_run import metrics

CALM = {
    "mean_return": 0.5,
    "group_return_std": 0.4,
    "entropy": 1.0,
    "kl_per_token": 0.001,
    "grad_norm": 0.5,
    "length": 100.0,
    "repetition": 0.1,
    "distinct": 0.9,
    "information": 0.8,
    "mismatch": 0.0,
}
FALL = Rule(name="r", figure="entropy", kind="fall", factor=0.25)
RISE = Rule(name="r", figure="entropy", kind="rise", factor=2)
SPIKE = Rule(name="r", figure="grad_norm", kind="spike", factor=4)
OVER = Rule(name="r", figure="repetition", kind="over", factor=0.6)


def history(figure: str, values: list[float | None], **changed: Any) -> list[WatchedStats]:
    return [WatchedStats.model_validate({**CALM, figure: value, **changed}) for value in values]


def warned(rule: Rule, values: list[float | None], **changed: Any) -> list[int]:
    """Return the iterations with a new warning."""
    figures = history(rule.figure, values, **changed)
    every = [new_warnings(figures[:count], [rule]) for count in range(1, len(values) + 1)]
    return [warning.iteration for found in every for warning in found]


@pytest.mark.parametrize(
    ("rule", "values", "warnings"),
    [
        (FALL, [1.0, 3.0, 0.5, 0.49, 0.1, 0.6, 0.4], [4, 7]),  # start (1 + 3) / 2 = 2; its limit 0.5 is no fall
        (FALL, [2.0, 0.49], [2]),  # the second iteration is compared with the first
        (FALL, [0.0], []),
        (FALL, [0.0, 0.0, -1.0], []),  # a start of zero
        (FALL, [None, 1.0, None, 3.0, None, 0.4], [6]),
        (RISE, [1.0, 2.0, 3.0, 3.1, 3.2, 1.0, 5.0], [4, 7]),  # start (1 + 2) / 2 = 1.5, limit 3
        (SPIKE, [9.0, 1.0, 2.0, 3.0, 2.0, 1.0, 8.0], []),  # the last five before have the median 2, the limit is 8
        (SPIKE, [9.0, 1.0, 2.0, 3.0, 2.0, 1.0, 8.1], [7]),
        (SPIKE, [None, None], []),
        (OVER, [0.7, 0.6, 0.61], [1, 3]),  # the value itself, from the first iteration on
    ],
)
def test_a_rule_warns_of_each_iteration_in_which_it_is_broken_anew(
    rule: Rule, values: list[float | None], warnings: list[int]
) -> None:
    assert warned(rule, values) == warnings


def test_a_warning_says_the_figure_and_its_limit() -> None:
    message = broken(FALL, history("entropy", [1.0, 3.0, 0.49]))
    assert message == "entropy is 0.49 (limit 0.5, under 0.25 times its start)"


def test_successful_runs_may_become_uniform() -> None:
    rule = FALL.model_copy(update={"solved_at": 0.9})
    assert warned(rule, [1.0, 1.0, 0.1], mean_return=0.9) == []
    assert warned(rule, [1.0, 1.0, 0.1], mean_return=0.89) == [3]


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8), st.floats(0.1, 10))
def test_relative_rules_know_no_unit(values: list[float], unit: float) -> None:
    for rule in (FALL, RISE, SPIKE):
        limits = [limit_of(rule, history(rule.figure, [scale * v for v in values])) for scale in (1.0, unit)]
        assert limits[0] is not None
        assert limits[1] == pytest.approx(unit * limits[0])


def test_a_calm_run_breaks_no_rule() -> None:
    calm = history("entropy", [1.0] * 6)
    assert [new_warnings(calm[:count], collapse_rules()) for count in range(1, 7)] == [[]] * 6
    assert {rule.figure for rule in collapse_rules()} <= set(WatchedStats.model_fields)
    assert len({rule.name for rule in collapse_rules()}) == len(collapse_rules())


def test_limits_are_of_the_runs_that_are_kept_and_none_of_those_fitted_on_breaks_one() -> None:
    text = Path(module.__file__).with_name("thresholds.json").read_text(encoding="utf-8")
    assert Thresholds.model_validate_json(text).recorded_runs == hashlib.sha256(RECORDED.read_bytes()).hexdigest()
    runs = [run for run in read_runs() if run.seed < COUNTED_FROM]
    assert len({(run.profile, run.kind, run.seed) for run in runs}) == len(runs)
    for run in runs:
        assert (warnings_of(run.history, collapse_rules()) == []) == (run.kind == "healthy"), run[:3]


KEYS = ("i001", "i002", "i003")


def watch(root: Path, entropies: list[float]) -> Layout:
    layout = Layout(root)
    for key, entropy in zip(KEYS, entropies, strict=True):
        write_document(layout.metrics(key), metrics(entropy=entropy))
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


@pytest.mark.parametrize("stage", ["collect_rollouts", "update_policy"])
def test_a_stopped_run_gives_the_reason_and_how_to_score_it(stage: str, tmp_path: Path) -> None:
    """The runner refuses what follows the third iteration; nothing of it is asked of the iterations before."""
    layout = watch(tmp_path, [1.0, 1.0, 1e-4])
    for action in ("none", "stop"):
        params = params_of("default", ["iterations=4", f"monitor.action={action}"]).model_dump(mode="json")
        write_document(layout.manifest, RunManifest(params=params, params_file="0" * 64, files={}, stages={}))
        with closing(ProcessCache()) as cache:
            for each in ("i003", "i004"):
                stopped = action == "stop" and each == "i004"
                with pytest.raises(TrainingStopped if stopped else ArtifactError) as refused:
                    PlainRunner(tmp_path, cache).run(stage, each)
    assert re.search(r"stopped after i003 .*iteration 3: entropy_fall: .*--set iterations=3", str(refused.value))


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
