"""Start the ranks of an update with torch's elastic launcher (which `torchrun` runs), and report why a rank failed.

A failed rank is not restarted: the update fails as a whole, and the next run of the stage repeats it to the same bytes.
"""

import logging
import math
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.core.learner.rank import EXPECTED, METRICS, PASSES, POLICY
from tasks.core.learner.training import UpdateJob
from tasks.core.records.documents import read_document
from tasks.core.records.files import read_json, replacing
from tasks.core.records.layout import Layout
from tasks.core.records.training import Metrics, Passes

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure


_log = logging.getLogger(__name__)
_RANK_MODULE = "tasks.core.learner.rank"
_CLOSING_S = 15
_WORKPLACE, _JOB = ".update_policy", "job.json"


class RankFailed(RuntimeError):  # noqa: N818 - the field's word
    """A rank of an update failed or died, and the update with it."""

    def __init__(self, message: str, ended_by: signal.Signals | None = None) -> None:
        """Make the error. `ended_by`: the signal that ended the rank; None for a rank that exited by itself."""
        super().__init__(message)
        self.ended_by = ended_by


class TrainedOnRanks(NamedTuple):
    """Results of an update on ranks, besides its policy."""

    metrics: Metrics
    passes: Passes
    """How forward passes took the rollouts."""


def train_on_ranks(job: UpdateJob) -> TrainedOnRanks:
    """Run `job` on its ranks and move the policy that they wrote into its folder, whole or not at all.

    Raises RankFailed, after every rank of this machine has ended.
    """
    with _workplace(job) as folder:
        start_ranks(job, folder)
        with replacing(job.layout.policy(job.key)) as temporary:
            (folder / POLICY).rename(temporary)
        return TrainedOnRanks(read_document(folder / METRICS, Metrics), read_json(folder / PASSES)["passes"])


def job_files(layout: Layout) -> Iterator[Path]:
    """Return the job files of the updates that now run in a project."""
    return layout.iteration("*").parent.glob(f"*/{_WORKPLACE}/{_JOB}")


def start_ranks(job: UpdateJob, folder: Path) -> None:
    """Start this machine's ranks of the job whose file lies in `folder`; return when all have succeeded."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    settings = job.update.distributed
    config = LaunchConfig(
        min_nodes=settings.nodes,
        max_nodes=settings.nodes,
        nproc_per_node=settings.ranks,
        run_id=f"update_policy-{job.key}",
        rdzv_backend="c10d",
        rdzv_endpoint=settings.rendezvous or "localhost:0",
        rdzv_configs={"join_timeout": math.ceil(settings.timeout_s)},
        local_addr=None if settings.nodes > 1 else "localhost",
        max_restarts=0,
        shutdown_timeout=_CLOSING_S,
        logs_specs=DefaultLogsSpecs(),
    )
    try:
        with _own_signal_handlers(), _quiet_launcher():
            elastic_launch(config, sys.executable)("-m", _RANK_MODULE, str(folder / _JOB))
    except ChildFailedError as error:
        raise _rank_failed(job, error.failures) from None
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise SystemExit(128 + error.sigval) from None


@contextmanager
def _workplace(job: UpdateJob) -> Iterator[Path]:
    """Make a folder with the job's file, on the file system of the result. Remove what a killed run left there."""
    folder = job.layout.iteration(job.key) / _WORKPLACE
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with replacing(folder / _JOB) as temporary:
            temporary.write_text(job.model_dump_json(), encoding="utf-8")
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Restore the process's signal handlers, which the launcher replaces for good."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    held: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in names}
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


@contextmanager
def _quiet_launcher() -> Iterator[None]:
    """Silence the launcher's own log of a failed rank; this module reports it as one error."""
    logger = logging.getLogger("torch.distributed.elastic")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _rank_failed(job: UpdateJob, failures: "dict[int, ProcessFailure]") -> RankFailed:
    """Return one error, for the failure that caused the others: our own error, else a signal, else the first failure.

    SIGTERM comes last: the launcher ends the other ranks with it.
    """

    def order(rank: int) -> tuple[bool, bool, bool, int, int]:
        code = failures[rank].exitcode
        return (code == -signal.SIGTERM, code != EXPECTED, code >= 0, failures[rank].timestamp, rank)

    rank = min(failures, key=order)
    failure = failures[rank]
    message = _message(failure)
    if failure.exitcode == EXPECTED:
        return RankFailed(message)
    rank_label = f"update_policy@{job.key}: rank {rank} of {job.update.distributed.size}"
    if failure.exitcode < 0:
        hint = " (the system kills processes when memory runs out)" if failure.exitcode == -signal.SIGKILL else ""
        text = (
            f"{rank_label} was killed by {failure.signal_name()}{hint}; nothing was saved, run the same command again"
        )
        return RankFailed(text, signal.Signals(-failure.exitcode))
    return RankFailed(f"{rank_label} failed: {message}; nothing was saved")


def _message(failure: "ProcessFailure") -> str:
    """Return the error's text without the exception's name, which torch put there (`record_exception`)."""
    error_entry: Any = failure.error_file_data.get("message")
    if not isinstance(error_entry, dict):
        return f"exit code {failure.exitcode}, without an error message"
    _log.info("%s", error_entry["extraInfo"]["py_callstack"])
    text = str(error_entry["message"])
    return text.partition(": ")[2] if failure.exitcode == EXPECTED else text
