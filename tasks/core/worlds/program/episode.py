"""The process of an episode: its variables and files, its end, and what it wrote."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from socket import gethostname
from tempfile import TemporaryDirectory, gettempdir
from threading import Thread
from typing import Annotated

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.interfaces.asking import Ask, Refusal, Said
from tasks.core.interfaces.world import Evaluation, Message, Observation, WorldFault
from tasks.core.processes.running import exists, parent_death_signal
from tasks.core.seeding import derive_seed
from tasks.core.tool_calls import plain_messages, readable_answer
from tasks.core.worlds.program.endpoint import Endpoint, Visit
from tasks.core.worlds.program.kind import ProgramConfig

_UNFINISHED = Evaluation((), ("the program has ended with a result",))
_TOLD = 2000
"""Characters of its output that a fault quotes."""


class Result(BaseModel):
    """The result that a program writes at its end: a reward, or the names of its tests, or both."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reward: Annotated[float, Field(ge=0, le=1)] | None = None
    passed: list[str] = Field(default_factory=list)
    failed: list[str] = Field(default_factory=list)

    def verdict(self, solved: float) -> Evaluation:
        """Return the verdict; a reward of `solved` is success where no tests are named. Raises WorldFault."""
        if self.passed or self.failed:
            return Evaluation(tuple(self.passed), tuple(self.failed), score=self.reward)
        if self.reward is None:
            raise WorldFault("its result has neither a reward nor tests")
        requirement = (f"a reward of at least {solved:g}",)
        is_solved = self.reward >= solved
        return Evaluation(requirement if is_solved else (), () if is_solved else requirement, score=self.reward)


class ProgramProcess:
    """A running program. Not thread-safe, except `close`."""

    def __init__(
        self, command: Sequence[str], folder: Path, task: str, variables: Mapping[str, str], on_end: Callable[[], None]
    ) -> None:
        """Start it; `on_end` is called once, from another thread, when it has ended. Raises WorldFault."""
        self._files = TemporaryDirectory(prefix=f"{_files_of_this_machine()}{os.getpid()}-", ignore_cleanup_errors=True)
        files = Path(self._files.name)
        (files / "task.json").write_text(task, encoding="utf-8")
        self._result, self._output = files / "result.json", files / "output.txt"
        own = {
            "LOOPLINE_TASK": str(files / "task.json"),
            "LOOPLINE_RESULT": str(self._result),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",  # what is in the folder counts as input
        }
        started: Future[subprocess.Popen[bytes]] = Future()
        arguments = (list(command), folder, {**os.environ, **own, **variables}, started, on_end)
        self._thread = Thread(target=self._run, args=arguments, name="program", daemon=True)
        self._thread.start()
        try:
            self._process = started.result()
        except OSError as error:
            self._files.cleanup()
            raise WorldFault(f"{command[0]} cannot be run: {error}") from None

    def verdict(self, solved: float) -> Evaluation:
        """Return the verdict of the program, which has ended. Raises WorldFault."""
        if code := self._process.returncode:
            raise WorldFault(f"the program ended with code {code}: {self.said()}")
        try:
            result = Result.model_validate_json(self._result.read_bytes())
        except FileNotFoundError:
            raise WorldFault(f"the program wrote no result: {self.said()}") from None
        except ValidationError as error:
            raise WorldFault(f"its result: {broken_rules(error, 'result')[0]}") from None
        return result.verdict(solved)

    def said(self) -> str:
        """Return the end of its output."""
        text = self._output.read_bytes()[-_TOLD:].decode("utf-8", "replace").strip()
        return json.dumps(text, ensure_ascii=False)[1:-1] or "it said nothing"

    def close(self) -> None:
        """End it with all that it started, and remove its files. Idempotent."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._thread.join()
        self._files.cleanup()

    def _run(
        self,
        command: list[str],
        folder: Path,
        variables: dict[str, str],
        started: "Future[subprocess.Popen[bytes]]",
        on_end: Callable[[], None],
    ) -> None:
        """Start it and wait, in one thread: it is killed when the thread that started it ends, however that ends."""
        try:
            with self._output.open("wb") as output:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=parent_death_signal(signal.SIGKILL),
                )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()
        on_end()


def _files_of_this_machine() -> str:
    """Return how the name of a program's folder begins; the pipeline's process id follows."""
    return f"loopline-program-{gethostname()}-"


def remove_left_files() -> None:
    """Remove the files of programs whose pipeline was killed."""
    for folder in Path(gettempdir()).glob(f"{_files_of_this_machine()}*-*"):
        pid = folder.name.removeprefix(_files_of_this_machine()).partition("-")[0]
        if pid.isdecimal() and not exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


class ProgramEpisode:
    """An `Episode` that is `Asking` (tasks/core/interfaces). Its program runs from the beginning."""

    def __init__(self, task: str, seed: int, config: ProgramConfig, python: Path, endpoint: Endpoint) -> None:
        """Start the program, whose task file has the text `task`. Raises WorldFault."""
        self._config, self._endpoint, self._seed = config, endpoint, seed
        self._visits: SimpleQueue[Visit | None] = SimpleQueue()
        self._visit: Visit | None = None
        self._seen = 0
        """Messages of the last request, and the answer to it."""
        self._waited, self._verdict = 0.0, _UNFINISHED
        self._guest = endpoint.admit(self._visits.put)
        program = [str(python), *config.command[1:]] if config.command[0] == "python" else config.command
        variables = {
            "OPENAI_BASE_URL": self._guest.base_url,
            "OPENAI_API_KEY": self._guest.token,
            "LOOPLINE_SEED": str(seed % 2**31),  # NumPy takes seeds of 32 bits
        }
        try:
            self._process = ProgramProcess(
                program, Path(config.folder), task, variables, lambda: self._visits.put(None)
            )
        except WorldFault:
            endpoint.dismiss(self._guest)
            raise

    def next_ask(self) -> Ask | None:
        """Wait for the next request; see `Asking`."""
        began, left = time.monotonic(), self._config.seconds - self._waited
        try:
            self._visit = self._visits.get(timeout=max(left, 0.0))
        except Empty:
            raise WorldFault(f"the program took more than {self._config.seconds:g} s: {self._process.said()}") from None
        self._waited += time.monotonic() - began
        if self._visit is None:
            self._verdict = self._process.verdict(self._config.solved)
            return None
        return self._visit.ask

    def answer(self, said: Said | Refusal) -> None:
        """Answer that request, or refuse it."""
        if self._visit is not None and self._visit.answer.set_running_or_notify_cancel():
            self._visit.answer.set_result(said)

    @property
    def prompt(self) -> list[Message]:
        """Return the first request's messages as text."""
        if self._visit is None and self._verdict is _UNFINISHED:
            self.next_ask()
        return self._shown() or [{"role": "user", "content": "The program asked for nothing."}]

    def step(self, text: str) -> Observation:
        """Answer one request with a text, and wait for the next. A turn after the end changes nothing."""
        if not (self.prompt and self._visit):
            return Observation("The program has ended.", done=True, failed=True, code_blocks=0)
        ask = self._visit.ask
        message, readable = readable_answer(text, "", ask.tools, derive_seed(self._seed, len(ask.messages)))
        self._seen = len(ask.messages) + 1
        self.answer(Said(message, "tool_calls" if "tool_calls" in message else "stop"))
        if self.next_ask() is None:
            return Observation("The program has ended.", done=True, failed=not readable)
        news = "\n\n".join(message["content"] for message in self._shown()[self._seen :])
        return Observation(news, done=False, failed=not readable)

    def evaluate(self) -> Evaluation:
        """Return the program's verdict; before its end, that of a task which is not solved."""
        return self._verdict

    def close(self) -> None:
        """End the program and its requests. Idempotent."""
        self._endpoint.dismiss(self._guest)
        self._process.close()

    def _shown(self) -> list[Message]:
        if self._visit is None:
            return []
        return plain_messages(self._visit.ask.messages, self._visit.ask.tools)
