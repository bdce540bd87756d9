"""A flow run in Prefect's UI besides its task runs: progress, warnings, outcomes, scores, events and lines.

A server that is down must not stop a run that DVC can finish, so after the first report that failed
nothing more is reported. Imports Prefect: import this module late.
"""

import builtins
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any, Literal

from httpx import HTTPError
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.events import emit_event
from prefect.events.worker import EventsWorker
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_URL

from flows.dag.dvc_seam import Outcome
from tasks.core.collapse.rules import read_warnings
from tasks.core.config.dag import iteration_number
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.processes.addresses import fault_of
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.scores import PairedScores, Scores

Happened = Literal["collapse-warned", "champion-changed", "schedule-skipped"]
"""Events of a checkout, on which automations of Prefect act (prefect.yaml has one: a note in the logs)."""
SERVER_FAULTS = (HTTPError, PrefectException, OSError)
"""Errors that a call of Prefect's client raises, once it has tried often enough, when the server is down."""
_PATIENCE_S = 2.0
DELIVERY_S = 60
_OURS = ("flows", "tasks")
"""Loggers whose records are of the stage, in whatever thread of this process they arise."""


class RunPage:
    """The artifacts of the flow run that it is made in."""

    def __init__(self, total: int | None) -> None:
        """Begin a page; `total` is the number of stages for the progress bar, None for no bar."""
        self._total = total
        self._done = 0
        self._bar: Any = None
        self.server_answers = True
        """False after a report failed."""
        if total is not None:
            with self._report():
                self._bar = create_progress_artifact(0.0, key="pipeline-progress", description=f"{total} stages")

    def advance(self, stage: str) -> None:
        """Count `stage` as done."""
        self._done += 1
        if self._bar is not None and self._total and self.server_answers:
            with self._report():
                update_progress_artifact(
                    self._bar,
                    min(100.0, 100.0 * self._done / self._total),
                    description=f"{self._done} of {self._total} stages; last: {stage}",
                )

    def show_outcomes(self, outcomes: Mapping[str, Outcome]) -> None:
        """Write a table: for each task, how many of its stages ran, came from the run cache, or were up to date."""
        if outcomes and self.server_answers:
            with self._report():
                create_table_artifact(
                    outcome_rows(outcomes), key="pipeline-stages", description="what became of each stage"
                )

    def show_warnings(self, root: Path, key: str) -> None:
        """Tell of the signs of a collapse that iteration `key` brought: a table of all so far, an event of each."""
        found = read_warnings(Layout(root), key)
        new = [warning for warning in found if warning.iteration == iteration_number(key)]
        if new and self.server_answers:
            rows = [warning.model_dump() for warning in found]
            with self._report():
                create_table_artifact(rows, key="pipeline-warnings", description="signs that training collapses")
            for one in new:
                tell("collapse-warned", f"{key}: {one.rule}: {one.evidence}", root, **one.model_dump(mode="json"))

    def show_scores(self, root: Path) -> None:
        """Write a table of TGC and SGC on both test splits, once both are there."""
        layout = Layout(root)
        if self.server_answers and all(layout.score(split).exists() for split in TEST_SPLITS):
            found = [read_document(layout.score(split), Scores) for split in TEST_SPLITS]
            rows = [row for scores in found for row in score_rows(scores)]
            with self._report():
                create_table_artifact(rows, key="pipeline-scores", description="TGC and SGC in percent")

    @contextmanager
    def _report(self) -> Iterator[None]:
        try:
            yield
        except SERVER_FAULTS as error:
            self.server_answers = False
            print(f"the Prefect server does not answer ({error}); the run goes on without it", file=sys.stderr)


def outcome_rows(outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """One row per task, in the order of the pipeline."""
    counts: dict[str, Counter[Outcome]] = {}
    for stage, outcome in outcomes.items():
        counts.setdefault(stage.partition("@")[0], Counter())[outcome] += 1
    kinds: tuple[Outcome, ...] = ("run", "from cache", "up to date")
    return [{"task": task, **{kind: count[kind] for kind in kinds}} for task, count in counts.items()]


def score_rows(scores: Scores) -> Iterator[dict[str, Any]]:
    """Yield the row of a split, and the row at the training budget where the split was played at that budget too."""
    found = scores.training_budget
    rows: list[tuple[str, PairedScores]] = [(scores.split, scores)]
    if found is not None:
        rows = [(f"{scores.split}, {found.test_limits.in_words}", scores)]
        if found.played_again:
            rows.append((f"{scores.split}, {found.limits.in_words} (training budget)", found))
    for name, of in rows:
        figures = {"TGC": of.tgc, "SGC": of.sgc, "base TGC": of.base_tgc, "base SGC": of.base_sgc}
        rounded = {kind: round(value, 1) for kind, value in figures.items()}
        yield {"split": name, "policy of iteration": scores.iteration, **rounded}


def tell(happened: Happened, text: str, root: Path, **facts: Any) -> None:
    """Send the event `loopline.HAPPENED` of the checkout `root`, with `text` in one line and `facts` as its payload.

    Nothing is sent where no Prefect server is configured (Prefect would start one for it), nor to one that doesn't
    answer: Prefect would try for seconds, and say so when the command ends.
    """
    url = PREFECT_API_URL.value()
    if url is None or fault_of(f"{url.rstrip('/')}/health", _PATIENCE_S) is not None:
        return
    resource = {
        "prefect.resource.id": f"loopline.checkout.{root.resolve()}",
        "prefect.resource.name": root.resolve().name,
    }
    emit_event(event=f"loopline.{happened}", resource=resource, payload={"text": text, **facts})


def keep_prefects_lines_from_the_console() -> None:
    """Have Prefect's own lines on runs, tracebacks among them, in its logs alone; the commands say what failed."""
    for name in ("prefect.task_runs", "prefect.flow_runs"):
        logger = logging.getLogger(name)
        logger.propagate = False
        logger.setLevel(logging.INFO)


@contextmanager
def lines_in_run_log() -> Iterator[None]:
    """Send what is printed and logged in the block to the logs of the present run; the console has it as always."""
    to_run, plain = _RunLog(), builtins.print

    def printed(*values: Any, sep: str | None = " ", file: Any = None, **how: Any) -> None:
        plain(*values, sep=sep, file=file, **how)
        if file in (None, sys.stdout, sys.stderr):
            to_run.say(logging.INFO, (" " if sep is None else sep).join(map(str, values)))

    builtins.print = printed
    for name in _OURS:
        logging.getLogger(name).addHandler(to_run)
    try:
        yield
    finally:
        builtins.print = plain
        for name in _OURS:
            logging.getLogger(name).removeHandler(to_run)


class _RunLog(logging.Handler):
    """Passes lines and records on to the logs of the run that it is made in."""

    def __init__(self) -> None:
        super().__init__()
        self._log, self._context = get_run_logger(), copy_context()

    def emit(self, record: logging.LogRecord) -> None:
        self.say(record.levelno, record.getMessage(), record.exc_info)

    def say(self, level: int, line: str, exc_info: Any = None) -> None:
        """Log a line. Threads of the stage's own do not know the server's address, so the run's context says it."""
        self._context.copy().run(self._log.log, level, "%s", line, exc_info=exc_info)


def deliver_reports() -> None:
    """Wait until the server has the lines and events that were said, for a minute each at most.

    Prefect itself gives them five seconds, which a server on a busy machine needs for one of them.
    """
    for service in (APILogWorker, EventsWorker):
        service.drain_all(timeout=DELIVERY_S, at_exit=False)
