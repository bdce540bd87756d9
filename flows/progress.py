"""How far a run is: its iterations, the time that is left, and the scores on dev so far, read from the artifacts.

Nothing is asked of the run itself, so that it works for `loopline run`, `dvc repro` and a scheduled run alike, from any
terminal.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from flows.dag.checkout_lock import LOCK
from flows.run_summary import duration
from tasks.core.config.params import ParamsError, load_params
from tasks.core.processes.running import exists
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import Attestation, StageVersions, recorded_params
from tasks.core.records.scores import Evaluation

_HEIGHT, _WIDTH = 10, 60
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

    @property
    def left_s(self) -> float | None:
        """Return the seconds until the last update, by the pace of the latest iterations; None before there is one."""
        latest = self.ended[-_LATEST - 1 :]
        if len(latest) < 2:
            return None
        return (latest[-1] - latest[0]) / (len(latest) - 1) * (self.total - len(self.ended))


def read_progress(root: Path) -> Progress:
    """Return the progress of the run in the checkout. Raises ParamsError where params.yaml cannot be read."""
    layout, holder = Layout(root), holder_of(root)
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
    return Progress(title, params.iterations, ended, scores, holder)


def holder_of(root: Path) -> str | None:
    """Return the run that works in the checkout, by the file of its lock; None where it has ended."""
    try:
        text = (root / LOCK).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    process = re.search(r"\(process (\d+)\)$", text)
    return text if process and exists(int(process[1])) else None


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


def page(progress: Progress) -> str:
    """Return the progress as text: a line, and a chart once there are scores."""
    done, left = len(progress.ended), progress.left_s
    state = f"at work: {progress.at_work}" if progress.at_work else "nothing is at work"
    estimate = "" if progress.at_work is None or not left else f", about {duration(left)} left until the last update"
    lines = [f"{progress.title}: {done} of {progress.total} iterations{estimate}", state]
    if progress.dev_tgc:
        lines += ["", "TGC on dev, percent", *chart(progress.dev_tgc, progress.total)]
    return "\n".join(lines)


def chart(points: Mapping[int, float], last: int) -> Iterator[str]:
    """Yield the lines of a chart of percentages over iterations 0 to `last`."""
    low, high = min(points.values()), max(points.values())
    span = high - low or 1.0
    rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for iteration, value in points.items():
        column = round(iteration * (_WIDTH - 1) / last) if last else 0
        rows[round((high - value) / span * (_HEIGHT - 1))][column] = "●"
    for number, row in enumerate(rows):
        label = high if number == 0 else low if number == _HEIGHT - 1 else None
        yield f"{'' if label is None else f'{label:.1f}':>6} │{''.join(row).rstrip()}"
    yield f"{'':6} └{'─' * _WIDTH}"
    yield f"{'':8}0{last:>{_WIDTH - 1}}"
