"""Lines that a stage prints or logs, sent to the tab of logs of its Prefect run too.

Imports Prefect: import this module late.
"""

import builtins
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from prefect.events.worker import EventsWorker
from prefect.logging import get_run_logger
from prefect.logging.handlers import APILogWorker

DELIVERY_S = 60
_OURS = ("flows", "tasks")
"""Loggers whose records are of the stage, in whatever thread of this process they arise."""


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
