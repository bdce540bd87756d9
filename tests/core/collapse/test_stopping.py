"""The iterations of a run that collapses, and its end where `monitor.action` is stop."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from flows.params_file import params_of
from flows.runners.plain_runner import PlainRunner
from tasks.core.collapse.rules import TrainingStopped, read_warnings
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import RunManifest
from tasks.core.records.training import EngineMismatch, PromptInformation, ResponseStats, watched
from tests.finished_run import metrics

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


@pytest.mark.parametrize(("stage", "key"), [("collect_rollouts", "i004"), ("update_policy", "i004")])
def test_a_stopped_run_gives_the_reason_and_how_to_score_it(stage: str, key: str, tmp_path: Path) -> None:
    """The runner refuses what follows the third iteration; nothing of it is asked of the iterations before."""
    layout = watch(tmp_path, [1.0, 1.0, 1e-4])
    for action in ("none", "stop"):
        params = params_of("default", ["iterations=4", f"monitor.action={action}"]).model_dump(mode="json")
        write_document(layout.manifest, RunManifest(params=params, params_file="0" * 64, files={}, stages={}))
        with closing(ProcessCache()) as cache:
            for each in ("i003", key):
                stopped = action == "stop" and each == key
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
