"""A live episode: the conversation around a server and a REPL, and in the end the task's unit tests.

The tests are of AppWorld's three kinds: required changes made, no other changes, right answer.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

from tasks.core.code_blocks import TurnCode, turn_code
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import Evaluation, Message, Observation
from tasks.core.sandbox import CallApi, Execution
from tasks.core.worlds.pocketworld.episodes.full_prompt import full_opening
from tasks.core.worlds.pocketworld.episodes.server import Completion, Server
from tasks.core.worlds.pocketworld.problems.problem import Problem
from tasks.core.worlds.pocketworld.problems.state import Difference, State, difference


def evaluate(problem: Problem, state: State, completion: Completion | None) -> Evaluation:
    """Run the tests of `problem` on the state an agent left behind. Every task has 3 to 8 tests."""
    verdicts = list(_verdicts(problem, state, completion))
    return Evaluation(
        passed=tuple(requirement for requirement, holds in verdicts if holds),
        failed=tuple(requirement for requirement, holds in verdicts if not holds),
    )


def _verdicts(problem: Problem, state: State, completion: Completion | None) -> Iterator[tuple[str, bool]]:
    expected = difference(problem.state, problem.solved)
    actual = difference(problem.state, state)
    yield from _additions(expected, actual)
    yield from _removals(expected, actual)
    yield from _updates(expected, actual)
    yield "nothing else changed", _within(actual, expected)
    if problem.answer is not None:
        yield "the answer is right", completion is not None and _same(completion.answer, problem.answer)
    yield "the task was completed, not given up", completion is not None and completion.status == "success"


def _additions(expected: Difference, actual: Difference) -> Iterator[tuple[str, bool]]:
    for (app, noun), wanted in expected.added.items():
        added = actual.added.get((app, noun), Counter())
        yield f"{app}: {wanted.total()} new {noun}", added.total() >= wanted.total()
        yield f"{app}: every new {noun} as asked", wanted <= added


def _removals(expected: Difference, actual: Difference) -> Iterator[tuple[str, bool]]:
    for (app, noun), wanted in expected.removed.items():
        removed = actual.removed.get((app, noun), frozenset())
        if len(wanted) > 1:
            yield f"{app}: one {noun} that had to go is gone", bool(wanted & removed)
        yield f"{app}: every {noun} that had to go is gone", wanted <= removed


def _updates(expected: Difference, actual: Difference) -> Iterator[tuple[str, bool]]:
    for (app, noun), wanted in expected.updated.items():
        updated = actual.updated.get((app, noun), {}).items()
        if len(wanted) > 1:
            yield f"{app}: one {noun} that had to change did", any(cell in updated for cell in wanted.items())
        yield f"{app}: every {noun} that had to change did", wanted.items() <= updated


def _within(actual: Difference, expected: Difference) -> bool:
    """Return whether nothing changed beyond what was expected."""
    return (
        all(rows <= expected.added.get(table, Counter()) for table, rows in actual.added.items())
        and all(keys <= expected.removed.get(table, frozenset()) for table, keys in actual.removed.items())
        and all(cells.items() <= expected.updated.get(table, {}).items() for table, cells in actual.updated.items())
    )


def _same(given: Any, right: Any) -> bool:
    """Compare answers: numbers by value, text ignoring case and outer blanks; a number may be given as text."""
    if isinstance(given, str):
        return given.strip().lower() == str(right).lower()
    return not isinstance(given, bool) and bool(given == right)


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

    def __init__(self, problem: Problem, repl: Repl, code_blocks: CodeBlocks = "first", full: bool = False) -> None:
        self._server = Server(problem)
        self._repl, self._code_blocks = repl, code_blocks
        self.prompt = full_opening(problem, SUCCESS) if full else opening(problem.instruction)

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
