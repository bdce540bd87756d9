"""The start of an update's ranks with torch's elastic launcher (which `torchrun` runs), and why one failed.

A failed rank is not restarted: the update fails as a whole, and the next run of the stage repeats it
to the same bytes. On several machines Ray starts them (flows/workers/ray_ranks.py).
"""

import logging
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.core.learner.update_job import UpdateJob
from tasks.core.processes.addresses import free_port
from tasks.core.records.documents import read_document
from tasks.core.records.files import read_json, replacing
from tasks.core.records.training import Metrics, Passes, UpdateTimings

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

_log = logging.getLogger(__name__)
RANK_MODULE = "tasks.core.learner.ranks"
_CLOSING_S = 15
_WORKPLACE, _JOB = ".update_policy", "job.json"
POLICY, METRICS, TIMINGS, PASSES = "policy", "metrics.json", "timings.json", "passes.json"
AGAIN = "; nothing was saved, run the same command again"
KILLED = " (the system kills processes when memory runs out)"
EXPECTED = 3
"""Exit code of a rank whose error message needs no stack trace."""


class RankFailed(RuntimeError):  # noqa: N818 - the field's word
    """A rank of an update failed or died, and the update with it."""

    def __init__(self, message: str, ended_by: signal.Signals | None = None) -> None:
        """Make the error. `ended_by`: the signal that ended the rank; None for a rank that exited by itself."""
        super().__init__(message)
        self.ended_by = ended_by


class TrainedOnRanks(NamedTuple):
    """Results of an update on ranks, besides its policy."""

    metrics: Metrics
    timings: UpdateTimings
    passes: Passes
    """How forward passes took the rollouts."""


def train_on_ranks(job: UpdateJob, ranks: Callable[[UpdateJob, Path], None] | None = None) -> TrainedOnRanks:
    """Run `job` on its ranks and move the policy that they wrote into its folder, whole or not at all.

    `ranks` runs them on several machines, writing into a folder; None: this machine does. Raises RankFailed, after
    every rank of this machine has ended, and what `ranks` raises.
    """
    with _workplace(job) as folder:
        (ranks or start_ranks)(job, folder)
        with replacing(job.layout.policy(job.key)) as temporary:
            (folder / POLICY).rename(temporary)
        return TrainedOnRanks(
            read_document(folder / METRICS, Metrics),
            read_document(folder / TIMINGS, UpdateTimings),
            read_json(folder / PASSES)["passes"],
        )


def start_ranks(job: UpdateJob, folder: Path) -> None:
    """Start ranks of `job`, with its file in `folder`; return when all have succeeded. Raises RankFailed."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with replacing(folder / _JOB) as temporary:
        temporary.write_text(job.model_dump_json(), encoding="utf-8")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=job.inputs.update.distributed.ranks,
        run_id=f"update_policy-{job.key}",
        rdzv_backend="static",
        rdzv_endpoint=f"localhost:{free_port()}",
        rdzv_configs={"rank": 0},
        local_addr="localhost",
        max_restarts=0,
        shutdown_timeout=_CLOSING_S,
        signals_to_handle="",
        logs_specs=DefaultLogsSpecs(),
    )
    try:
        with _own_signal_handlers(), _quiet_launcher():
            elastic_launch(config, sys.executable)("-m", RANK_MODULE, str(folder / _JOB))
    except ChildFailedError as error:
        raise _rank_failed(job, error.failures) from None


@contextmanager
def _workplace(job: UpdateJob) -> Iterator[Path]:
    """Make a folder on the file system of the result. Remove what a killed run left there."""
    folder = job.layout.iteration(job.key) / _WORKPLACE
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """End by SIGTERM and its like as by Ctrl-C, so that the launcher ends its ranks first.

    The launcher's own handlers raise an Exception, which is lost where it comes within a call of `logging`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    heeded = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        if signal.getsignal(number) is not signal.SIG_IGN  # as nohup has it
    ]
    held = {number: signal.signal(number, end) for number in heeded}
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


@contextmanager
def _quiet_launcher() -> Iterator[None]:
    """Silence the launcher's own log, of a failed rank too; this module reports it as one error."""
    loggers = [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if name.startswith("torch.distributed.elastic") and isinstance(logger, logging.Logger)
    ]  # each has a level of its own
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
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
    rank_label = f"update_policy@{job.key}: rank {rank} of {job.inputs.update.distributed.size}"
    if failure.exitcode < 0:
        hint = KILLED if failure.exitcode == -signal.SIGKILL else ""
        text = f"{rank_label} was killed by {failure.signal_name()}{hint}{AGAIN}"
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
