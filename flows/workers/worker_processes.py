"""Worker processes on this machine, each of which plays one shard at a time.

They are spawned, not forked: the parent has loaded torch and started threads, which a fork does not copy. A worker
imports torch and transformers, so the workers stay until the parent's cache is closed, with world, engine and chat
format loaded.
"""

import gc
import logging
import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from flows.signals import stop_cleanly_on_signals
from flows.workers.remote_task import DEATHS, RemoteTask, WorkerDied, close_process_cache, run_remote
from tasks.core.processes.resources import CORES_VARIABLE, usable_cores
from tasks.core.processes.shown_work import shown_work

_SPAWN = multiprocessing.get_context("spawn")
_END_S = 10.0
"""Seconds that a worker may take to close what it has loaded."""
_log = logging.getLogger(__name__)


class WorkerProcesses:
    """`count` workers. Use them in the main thread: Linux ends a worker with the thread that started it."""

    def __init__(self, count: int) -> None:
        """Start the workers, without waiting for them."""
        self._cores = max(1, usable_cores() // count)
        self._workers = [_Worker(self._cores) for _ in range(count)]

    @property
    def places(self) -> int:
        return len(self._workers)

    def run_remote(self, tasks: Sequence[RemoteTask], shards: Sequence["Future[Any]"]) -> None:
        """Complete `shards`, each with the result of one of `tasks`; after an error, cancel those that have none.

        A new worker plays the shard of a worker that died. Raises WorkerDied and what `remote_task.run_remote` raises,
        after the workers of other shards have ended.
        """
        waiting, deaths = deque(range(len(tasks))), Counter[int]()
        described = f"in {len(self._workers)} processes"
        try:
            with shown_work(described, sum(len(task.item) for task in tasks), "rollout", leave=True) as work:
                while waiting or self._busy():
                    for worker in self._workers:
                        if waiting and worker.place is None:
                            worker.begin(waiting.popleft(), tasks)
                    for place, outcome in self._outcomes():
                        if outcome is None:
                            deaths[place] += 1
                            _require_survivable(tasks[place], deaths[place])
                            waiting.appendleft(place)
                        else:
                            _complete(shards[place], outcome)
                            work.advance(len(tasks[place].item))
        finally:
            self._replace(self._busy())
            for shard in shards:
                shard.cancel()

    def close(self) -> None:
        """End the workers."""
        _end(self._workers)
        self._workers = []

    def _busy(self) -> list["_Worker"]:
        return [worker for worker in self._workers if worker.place is not None]

    def _outcomes(self) -> list[tuple[int, "Outcome | None"]]:
        """Wait for a worker; return each task's place with its outcome, None where the worker died and is replaced."""
        busy = {worker.pipe: worker for worker in self._busy()}
        over = [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]
        outcomes = [(worker.place or 0, worker.outcome()) for worker in over]
        self._replace([worker for worker, (_, outcome) in zip(over, outcomes, strict=True) if outcome is None])
        return outcomes

    def _replace(self, ended: Sequence["_Worker"]) -> None:
        _end(ended)
        self._workers = [_Worker(self._cores) if worker in ended else worker for worker in self._workers]


class Outcome(NamedTuple):
    """The result of a task, or its error."""

    result: Any
    error: Exception | None


class _Worker:
    """One worker, and the pipe to it."""

    def __init__(self, cores: int) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self.place: int | None = None
        """Place of the task that it has; None: idle."""
        self._process = _SPAWN.Process(target=_serve, args=(theirs, cores), daemon=True)
        self._process.start()
        theirs.close()  # else the pipe would outlive the worker

    def begin(self, place: int, tasks: Sequence[RemoteTask]) -> None:
        """Send the task at `place`. A worker that died while it was idle has no outcome, as one that dies later."""
        self.place = place
        with suppress(OSError):
            self.pipe.send(tasks[place])

    def outcome(self) -> Outcome | None:
        """Receive the task's outcome; None: the worker died. The worker is idle afterwards."""
        self.place = None
        with suppress(EOFError, OSError):
            return self.pipe.recv()  # type: ignore[no-any-return]
        return None

    def ask_to_end(self) -> None:
        self.pipe.close()
        self._process.terminate()

    def end(self) -> None:
        self._process.join(_END_S)
        self._process.kill()
        self._process.join()


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.ask_to_end()
    for worker in workers:
        worker.end()


def _require_survivable(task: RemoteTask, deaths: int) -> None:
    """Warn of a death. Raises WorkerDied after too many of them."""
    died = f"{task.item.description}: its worker died"
    if deaths > DEATHS:
        raise WorkerDied(f"{died} {deaths} times; is memory short? machines.processes says how many share it")
    _log.warning("%s; is memory short? Another one plays it again", died)


def _complete(shard: "Future[Any]", outcome: Outcome) -> None:
    if outcome.error is not None:
        shard.set_exception(outcome.error)
        raise outcome.error
    shard.set_result(outcome.result)


def _serve(pipe: Connection, cores: int) -> None:
    """Run tasks until nobody can send any: this is the worker."""
    stop_cleanly_on_signals()
    signal.signal(signal.SIGINT, lambda number, frame: None)  # Ctrl-C reaches the parent too, which ends its workers
    os.environ[CORES_VARIABLE] = str(cores)
    # torch imported with more threads than the worker has cores: they would spin on the cores of other workers.
    os.environ.setdefault("OMP_NUM_THREADS", str(cores))
    try:
        while True:
            pipe.send(_outcome(pipe.recv()))
    except (EOFError, BrokenPipeError):
        pass
    finally:
        close_process_cache()
        gc.freeze()  # else Python looks through all that torch loaded, for seconds, only to exit


def _outcome(task: RemoteTask) -> Outcome:
    try:
        return Outcome(run_remote(task), None)
    except Exception as error:
        return Outcome(None, error)
