"""The iterations of a run that are done, its pace and its scores on dev, read from the artifacts.

Nothing is asked of the run itself, so that it works for `loopline run`, `dvc repro` and a scheduled run alike, from any
terminal.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flows.dag.checkout_lock import LOCK, holder_of
from flows.hosts_at_work import hosts_at_work
from tasks.core.config.dag import iteration_number
from tasks.core.config.params import ParamsError, load_params
from tasks.core.processes.shown_work import duration
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import Attestation, StageVersions, recorded_params
from tasks.core.records.scores import Evaluation
from tasks.core.records.training import Metrics

_LATEST = 5
"""Iterations whose pace says how long the others take."""


@dataclass(frozen=True)
class Progress:
    """A run at one moment."""

    title: str
    total: int
    ended: list[float]
    """When each iteration's update was done, in seconds since the epoch."""
    dev_tgc: Mapping[int, float]
    """TGC on dev in percent by iteration; 0 is the base policy."""
    at_work: str | None
    """The stage or command that holds the checkout; None where nothing runs."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """The work of each machine, by name, where several are at work."""

    @property
    def left_s(self) -> float | None:
        """Return the seconds until the last update, by the pace of the latest iterations; None before there is one."""
        latest = self.ended[-_LATEST - 1 :]
        if len(latest) < 2:
            return None
        return (latest[-1] - latest[0]) / (len(latest) - 1) * (self.total - len(self.ended))


def read_progress(root: Path) -> Progress:
    """Return the progress of the run in the checkout. Raises ParamsError where params.yaml cannot be read."""
    layout, holder = Layout(root), holder_of(root / LOCK)
    try:
        params = recorded_params(layout)
    except (ArtifactError, ParamsError):  # nothing has run yet, or an older version of this code ran
        params = load_params(layout.params)
    ended = [*_ended(layout, params.dag.previous)] if layout.stage_versions.exists() else []
    evaluated = [key for key in params.dag.evaluated if int(key[1:]) <= len(ended)]
    scores = {
        int(key[1:]): read_document(layout.evaluation(key), Evaluation).tgc
        for key in evaluated
        if layout.evaluation(key).exists()
    }
    title = f"{' '.join(params.profiles)} in {params.world.name}"
    return Progress(title, params.iterations, ended, scores, holder, hosts_at_work(root))


def _ended(layout: Layout, keys: Mapping[str, object]) -> Iterator[float]:
    """Yield when each update was done, from the first on, up to the first that is not of this run.

    That is an update of other code or knobs than are recorded now, or one that is older than the update before it.
    """
    version = read_document(layout.stage_versions, StageVersions).root["update_policy"]
    latest = 0.0
    for key in keys:
        path = layout.attestation("update_policy", key)
        if not path.exists() or read_document(path, Attestation).version != version:
            return
        if path.stat().st_mtime < latest:
            return
        latest = path.stat().st_mtime
        yield latest


def stage_line(layout: Layout, stage: str, key: str) -> str | None:
    """Return a line on what a stage has just come to, as a sign of life; None where there is none to give."""
    try:
        if stage == "update_policy":
            return _iteration_line(layout, key)
        if stage == "evaluate_policy":
            found = read_document(layout.evaluation(key), Evaluation)
            return f"{key}: dev TGC {found.tgc:.1f}, SGC {found.sgc:.1f}, return {found.mean_return:.2f}"
    except (ArtifactError, ParamsError):
        pass  # whoever needs the artifact says so
    return None


def _iteration_line(layout: Layout, key: str) -> str:
    progress, metrics = read_progress(layout.root), read_document(layout.metrics(key), Metrics)
    figures = [f"return {metrics.mean_return:.2f}"]
    if (dev := progress.dev_tgc.get(iteration_number(key))) is not None:
        figures.append(f"dev {dev:.1f}")
    if len(progress.ended) > 1:
        figures.append(duration(progress.ended[-1] - progress.ended[-2]))
    if progress.left_s:
        figures.append(f"about {duration(progress.left_s)} left of training")
    return f"{key} of {progress.total}: {', '.join(figures)}"
