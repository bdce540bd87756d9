"""The iterations of a run that are done, its pace and its scores on dev, read from the artifacts.

Nothing is asked of the run itself, so that it works for `loopline run`, `dvc repro` and a scheduled run alike, from any
terminal. An artifact counts where dvc.lock says that this run made it: the run before left some of the same names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from statistics import median

from flows.dag.checkout_lock import LOCK, holder_of
from flows.dag.file_signatures import Signature, signatures
from flows.hosts_at_work import hosts_at_work
from tasks.core.config.dag import iteration_number
from tasks.core.config.params import Params, ParamsError, load_params
from tasks.core.lineage.dvc_lock import LockedStage, lock_of
from tasks.core.lineage.integrity import dvc_md5
from tasks.core.processes.shown_work import duration
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import StageVersions, recorded_params
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
        """Return the seconds until the last update, by the pace of the latest iterations; None before there is one.

        By the median, since a run that was stopped and went on has one long iteration.
        """
        latest = self.ended[-_LATEST - 1 :]
        if len(latest) < 2:
            return None
        return median(b - a for a, b in pairwise(latest)) * (self.total - len(self.ended))


def read_progress(root: Path) -> Progress:
    """Return the progress of the run in the checkout. Raises ParamsError where params.yaml cannot be read."""
    layout = Layout(root)
    params, current = recorded_run(layout)
    title = f"{' '.join(params.profiles)} in {params.world.name}"
    ended = [*_ended(layout, params, current)]
    scores = dict(_dev_tgc(layout, params, current))
    return Progress(title, params.iterations, ended, scores, holder_of(root / LOCK), hosts_at_work(root))


def recorded_run(layout: Layout) -> tuple[Params, Mapping[str, LockedStage]]:
    """Return the parameters of the run that began last, and the stages that are up to date in it, by DVC's name.

    Before a first run those are the parameters of params.yaml. Raises ParamsError where that one cannot be read.
    """
    try:
        files = layout.manifest, layout.stage_versions, layout.root / "dvc.lock"
        return _recorded_run(layout, tuple(signatures(files).values()))
    except (ArtifactError, ParamsError):  # nothing has run yet, or an older version of this code ran
        return load_params(layout.params), {}


@lru_cache(maxsize=64)  # a study asks each second
def _recorded_run(layout: Layout, seen: tuple[Signature, ...]) -> tuple[Params, Mapping[str, LockedStage]]:
    params, versions = recorded_params(layout), read_document(layout.stage_versions, StageVersions)
    if not (layout.root / "dvc.lock").exists():
        return params, {}
    stages = {stage.name: stage for stage in lock_of(layout.root, params).stages}
    makers = {path: stage for stage in stages.values() for path in stage.outs}
    current: dict[str, LockedStage] = {}
    for name in TopologicalSorter(
        {name: {makers[path].name for path in stage.deps if path in makers} for name, stage in stages.items()}
    ).static_order():
        stage = stages[name]
        inputs = [(makers[path], path, md5) for path, md5 in stage.deps.items() if path in makers]
        as_made = all(maker.name in current and maker.outs[path] == md5 for maker, path, md5 in inputs)
        if as_made and stage.version == versions.root.get(stage.task):
            current[name] = stage
    return params, current


def _ended(layout: Layout, params: Params, current: Mapping[str, LockedStage]) -> Iterator[float]:
    """Yield when each update of this run was done, from the first on."""
    for key in params.dag.previous:
        path = layout.attestation("update_policy", key)
        if f"update_policy@{key}" not in current or not path.exists():
            return
        yield path.stat().st_mtime


def _dev_tgc(layout: Layout, params: Params, current: Mapping[str, LockedStage]) -> Iterator[tuple[int, float]]:
    for key in params.dag.evaluated:
        path, stage = layout.evaluation(key), current.get(f"evaluate_policy@{key}")
        if stage is None or not path.exists():
            continue
        if stage.outs.get(path.relative_to(layout.root).as_posix()) == dvc_md5(path):
            yield int(key[1:]), read_document(path, Evaluation).tgc


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
    """Return the line of the update that has just ended, which dvc.lock does not have yet."""
    progress, metrics = read_progress(layout.root), read_document(layout.metrics(key), Metrics)
    now = layout.attestation("update_policy", key).stat().st_mtime
    progress = replace(progress, ended=[*progress.ended[: iteration_number(key) - 1], now])
    figures = [f"return {metrics.mean_return:.2f}"]
    if len(progress.ended) > 1:
        figures.append(duration(progress.ended[-1] - progress.ended[-2]))
    if progress.left_s:
        figures.append(f"about {duration(progress.left_s)} left of training")
    return f"{key} of {progress.total}: {', '.join(figures)}"
