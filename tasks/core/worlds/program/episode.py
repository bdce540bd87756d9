"""A live episode: a program, and the requests that it makes of the policy."""

import time
from pathlib import Path
from queue import Empty, SimpleQueue

from tasks.core.interfaces.asking import Ask, Refusal, Said
from tasks.core.interfaces.world import Evaluation, Message, Observation, WorldFault
from tasks.core.seeding import derive_seed
from tasks.core.tool_calls.chat_messages import plain_messages, readable_answer
from tasks.core.worlds.program.endpoint import Endpoint, Visit
from tasks.core.worlds.program.kind import ProgramConfig
from tasks.core.worlds.program.process import ProgramProcess
from tasks.core.worlds.program.tasks import ProgramTask, task_file

_UNFINISHED = Evaluation((), ("the program has ended with a result",))
_SEEDS = 2**31
"""NumPy takes seeds of 32 bits."""


class ProgramEpisode:
    """An `Episode` that is `Asking` (tasks/core/interfaces). Its program runs from the beginning."""

    def __init__(self, task: ProgramTask, seed: int, config: ProgramConfig, python: Path, endpoint: Endpoint) -> None:
        """Start the program. Raises WorldFault."""
        self._config, self._endpoint, self._seed = config, endpoint, seed
        self._visits: SimpleQueue[Visit | None] = SimpleQueue()
        self._visit: Visit | None = None
        self._seen = 0
        """Messages of the last request, and the answer to it."""
        self._waited, self._verdict = 0.0, _UNFINISHED
        self._guest = endpoint.admit(self._visits.put)
        program = [str(python), *config.command[1:]] if config.command[0] == "python" else config.command
        variables = {"OPENAI_BASE_URL": self._guest.base_url, "OPENAI_API_KEY": self._guest.token}
        try:
            self._process = ProgramProcess(
                program,
                Path(config.folder),
                task_file(task),
                seed % _SEEDS,
                variables,
                lambda: self._visits.put(None),
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
        return self._visit.request.ask

    def answer(self, said: Said) -> None:
        """Answer that request."""
        self._settle(said)

    def refuse(self, refusal: Refusal) -> None:
        """Answer it with an error."""
        self._settle(refusal)

    @property
    def prompt(self) -> list[Message]:
        """Return the first request's messages as text."""
        if self._visit is None and self._verdict is _UNFINISHED:
            self.next_ask()
        return self._shown() or [{"role": "user", "content": "The program asked for nothing."}]

    def step(self, text: str) -> Observation:
        """Answer one request with a text, and wait for the next. A turn after the end changes nothing."""
        asked = self.prompt and self._visit
        if not asked:
            return Observation("The program has ended.", done=True, failed=True, code_blocks=0)
        ask = asked.request.ask
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
        ask = self._visit.request.ask
        return plain_messages(ask.messages, ask.tools)

    def _settle(self, result: Said | Refusal) -> None:
        if self._visit is not None and self._visit.answer.set_running_or_notify_cancel():
            self._visit.answer.set_result(result)
