"""A live episode: the conversation around a server and a REPL."""

import re
from typing import Any, Protocol

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import Evaluation, Message, Observation
from tasks.core.sandbox import CallApi, Execution
from tasks.core.worlds.code_blocks import TurnCode, turn_code
from tasks.core.worlds.pocketworld.authoring.scenarios import Problem
from tasks.core.worlds.pocketworld.episodes.evaluation import evaluate
from tasks.core.worlds.pocketworld.episodes.server import Server

SYSTEM_PROMPT = "You solve tasks by writing python code. Read the docs first."
NO_CODE = "No code found. Write one python code block."
ONLY_FIRST = "Only the first code block ran."
SUCCESS = "Execution successful."


class Repl(Protocol):
    """The part of a REPL that an episode needs: `tasks.core.sandbox.Repl`, or a trusted REPL in this process."""

    def run(self, code: str, call_api: CallApi) -> Execution: ...

    def close(self) -> None: ...


class PocketEpisode:
    """An episode; see `tasks.core.interfaces.world.Episode`."""

    def __init__(self, problem: Problem, repl: Repl, code_blocks: CodeBlocks = "first") -> None:
        self._server = Server(problem)
        self._repl, self._code_blocks = repl, code_blocks
        self.prompt = opening(problem.instruction)

    def step(self, text: str) -> Observation:
        """Run the code of `text` (see `turn_code`). A turn without code counts as failed."""
        code = turn_code(text, self._code_blocks)
        if not code.blocks:
            return Observation(NO_CODE, done=False, failed=True, code_blocks=0)
        start = len(self._server.log)
        execution = self._repl.run(code.text, self._call)
        log = self._server.log[start:]
        shown, ending = _observed(execution, code)
        return Observation(
            shown,
            ending=ending,
            done=self._server.completion is not None,
            failed=execution.failed,
            api_calls=tuple(name for name, _ in log),
            failed_api_calls=tuple(name for name, failed in log if failed),
            code_blocks=code.blocks,
        )

    def evaluate(self) -> Evaluation:
        """Run the task's unit tests on the current state."""
        return evaluate(self._server.problem, self._server.state, self._server.completion)

    def close(self) -> None:
        """End the REPL."""
        self._repl.close()

    def _call(self, app: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self._server.call(app, name, args, kwargs)


def opening(instruction: str) -> list[Message]:
    """Return the prompt of a task."""
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": instruction}]


def _observed(execution: Execution, code: TurnCode) -> tuple[str, str]:
    """Return the part that may be cut, and the ending, which stays whole: an error, and what did not run."""
    printed = _printed(execution) if execution.failed else execution.output.rstrip("\n")
    outcome = f"Execution failed. {execution.error}" if execution.failed else SUCCESS
    notes = [ONLY_FIRST] if code.ran < code.blocks else []
    if printed and execution.failed:
        notes.insert(0, outcome)
    return printed or outcome, "".join(f"\n{note}" for note in notes)


def _printed(execution: Execution) -> str:
    """Return what failing code printed before it failed, without the source line that the sandbox adds."""
    printed = execution.output.removesuffix(execution.error).rstrip("\n")
    return _SOURCE_LINE.sub("", printed)


_SOURCE_LINE = re.compile(r"(^|\n)line \d+: [^\n]*\Z")
