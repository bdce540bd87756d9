"""The process of an episode: its variables and files, its end, and what it wrote."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.interfaces.world import Evaluation, WorldFault

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
        self,
        command: Sequence[str],
        folder: Path,
        task: str,
        seed: int,
        variables: Mapping[str, str],
        on_end: Callable[[], None],
    ) -> None:
        """Start it; `on_end` is called once, from another thread, when it has ended. Raises WorldFault."""
        self._files = TemporaryDirectory(prefix="loopline-program-", ignore_cleanup_errors=True)
        files = Path(self._files.name)
        (files / "task.json").write_text(task, encoding="utf-8")
        self._result, self._output = files / "result.json", files / "output.txt"
        own = {
            "LOOPLINE_TASK": str(files / "task.json"),
            "LOOPLINE_RESULT": str(self._result),
            "LOOPLINE_SEED": str(seed),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",  # what is in the folder counts as input
        }
        try:
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    list(command),
                    cwd=folder,
                    env={**os.environ, **own, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            self._files.cleanup()
            raise WorldFault(f"{command[0]} cannot be run: {error}") from None
        self._waiting = threading.Thread(target=self._wait, args=(on_end,), name="program", daemon=True)
        self._waiting.start()

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
        self._waiting.join()
        self._files.cleanup()

    def _wait(self, on_end: Callable[[], None]) -> None:
        self._process.wait()
        on_end()
