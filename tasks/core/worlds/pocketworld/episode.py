"""A live episode: the conversation around a REPL and a server for its API calls, and in the end the task's unit tests.

The tests are of AppWorld's three kinds: required changes made, no other changes, right answer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tasks.core.code_blocks import TurnCode, turn_code
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import Evaluation, Message, Observation
from tasks.core.sandbox import ApiError, CallApi, Execution
from tasks.core.worlds.pocketworld.apps import NUMERIC_FIELDS, Operation, Release
from tasks.core.worlds.pocketworld.full_prompt import full_opening
from tasks.core.worlds.pocketworld.problem import Problem
from tasks.core.worlds.pocketworld.state import Difference, Row, State, difference


@dataclass(frozen=True)
class Completion:
    """dict[str, Any] of the agent's call to complete_task."""

    answer: Any
    status: str


class Server:
    """The apps of one episode. `call` has the signature of `tasks.core.sandbox.CallApi`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.state = problem.state.copy()
        self.completion: Completion | None = None
        self.log: list[tuple[str, bool]] = []
        """(app.name, failed) of every call so far, in order."""
        self._logged_in: set[str] = set()
        self._system: dict[tuple[str, str], tuple[tuple[str, ...], Callable[..., Any]]] = {
            ("supervisor", "passwords"): ((), lambda: dict(problem.passwords)),
            ("supervisor", "profile"): ((), lambda: dict(problem.profile)),
            ("supervisor", "complete_task"): (("answer", "status"), self._complete_task),
            ("api_docs", "list_apps"): ((), lambda: [*sorted(_SYSTEM_APPS), *problem.releases]),
            ("api_docs", "list_apis"): (("app",), self._list_apis),
            ("api_docs", "show_api_doc"): (("app", "api"), self._show_api_doc),
        }

    def call(self, app: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Answer a call with a JSON value. Raises ApiError with a short message for any mistake in it."""
        try:
            answer = self._answer(app, name, args, kwargs)
        except ApiError:
            self.log.append((f"{app}.{name}", True))
            raise
        self.log.append((f"{app}.{name}", False))
        return answer

    def _answer(self, app: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self.completion is not None:
            raise ApiError("The task is complete.")
        if args:
            raise ApiError("Use keyword arguments.")
        if app in _SYSTEM_APPS:
            return self._call_system(app, name, kwargs)
        release = self._release(app)
        if name == "login":
            return self._login(release, kwargs)
        operation = release.operation(name)
        if operation is None:
            raise ApiError(f"{app} has no API {name}.")
        if app not in self._logged_in:
            raise ApiError(f"Log in to {app} first.")
        return self._operate(release, operation, name, kwargs)

    def _call_system(self, app: str, name: str, kwargs: dict[str, Any]) -> Any:
        if (app, name) not in self._system:
            raise ApiError(f"{app} has no API {name}.")
        parameters, answer = self._system[app, name]
        if not kwargs.keys() <= set(parameters):
            raise ApiError(_takes(app, name, parameters))
        return answer(**kwargs)

    def _release(self, app: str) -> Release:
        release = self.problem.releases.get(app)
        if release is None:
            raise ApiError(f"There is no app {app}.")
        return release

    def _login(self, release: Release, kwargs: dict[str, Any]) -> None:
        if set(kwargs) != {"password"}:
            raise ApiError(_takes(release.app.name, "login", ("password",)))
        if kwargs["password"] != self.problem.passwords[release.app.name]:
            raise ApiError("The password is wrong.")
        self._logged_in.add(release.app.name)

    def _operate(self, release: Release, operation: Operation, name: str, kwargs: dict[str, Any]) -> Any:
        values = _checked(release, operation, name, kwargs)
        place = release.app.name, operation.noun
        if operation.kind in ("list", "find"):
            rows = (row for row in self.state[place] if all(row[field] == value for field, value in values.items()))
            return [_shown(row, release) for row in rows]
        table = release.app.table_of(operation.noun)
        if operation.kind == "create":
            return _shown(self.state.insert(release.app.name, table, values), release)
        row = self._row(place, values.pop("id"))
        if operation.kind == "delete":
            self.state[place].remove(row)
            return None
        row.update(values)
        return _shown(row, release)

    def _row(self, table: tuple[str, str], key: int) -> Row:
        for row in self.state[table]:
            if row["id"] == key:
                return row
        raise ApiError(f"There is no {table[1]} with id {key}.")

    def _complete_task(self, answer: Any = None, status: Any = "success") -> None:
        if status not in ("success", "fail"):
            raise ApiError("status must be success or fail.")
        if not isinstance(answer, str | int | float | None):
            raise ApiError("answer must be a single value.")
        self.completion = Completion(answer, status)

    def _list_apis(self, app: Any = None) -> list[str]:
        if _text(app, "app") in _SYSTEM_APPS:
            return [name for owner, name in self._system if owner == app]
        return ["login", *self._release(app).calls]

    def _show_api_doc(self, app: Any = None, api: Any = None) -> str:
        docs = self._system_docs(app) if _text(app, "app") in _SYSTEM_APPS else self._release(app).docs()
        if api is None:
            return "\n".join(docs.values())
        if _text(api, "api") not in docs:
            raise ApiError(f"{app} has no API {api}.")
        return docs[api]

    def _system_docs(self, app: str) -> dict[str, str]:
        taken = {name: parameters for (owner, name), (parameters, _) in self._system.items() if owner == app}
        return {name: f"{name}({', '.join(parameters)})" for name, parameters in taken.items()}


_SYSTEM_APPS = frozenset({"supervisor", "api_docs"})


def _shown(row: Row, release: Release) -> Row:
    """Return a record with the release's field names."""
    return {release.labels.get(field, field): value for field, value in row.items()}


def _takes(app: str, name: str, parameters: tuple[str, ...]) -> str:
    return f"{app}.{name} takes {', '.join(parameters) or 'no arguments'}."


def _checked(release: Release, operation: Operation, name: str, kwargs: dict[str, Any]) -> Row:
    """Return the arguments by canonical field. Raises ApiError for missing, unknown or mistyped arguments."""
    parameters = release.parameters(operation)
    given = set(kwargs)
    complete = bool(given) if operation.kind == "find" else given == set(parameters)
    if not complete or not given <= set(parameters):
        raise ApiError(_takes(release.app.name, name, parameters))
    fields = {release.labels[field]: field for field in operation.fields} | {"id": "id"}
    return {fields[label]: _typed(label, fields[label], value) for label, value in kwargs.items()}


def _typed(label: str, field: str, value: Any) -> Any:
    if field not in NUMERIC_FIELDS:
        return _text(value, label)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ApiError(f"{label} must be a number.")
    return value


def _text(value: Any, label: str) -> str:
    if not isinstance(value, str):
        raise ApiError(f"{label} must be text.")
    return value


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
    for (app, noun), wanted in expected.added.items():
        added = actual.added.get((app, noun), Counter())
        yield f"{app}: {wanted.total()} new {noun}", added.total() >= wanted.total()
        yield f"{app}: every new {noun} as asked", wanted <= added
    for (app, noun), keys in expected.removed.items():
        removed = actual.removed.get((app, noun), frozenset())
        if len(keys) > 1:
            yield f"{app}: one {noun} that had to go is gone", bool(keys & removed)
        yield f"{app}: every {noun} that had to go is gone", keys <= removed
    for (app, noun), cells in expected.updated.items():
        updated = actual.updated.get((app, noun), {}).items()
        if len(cells) > 1:
            yield f"{app}: one {noun} that had to change did", any(cell in updated for cell in cells.items())
        yield f"{app}: every {noun} that had to change did", cells.items() <= updated
    yield "nothing else changed", _within(actual, expected)
    if problem.answer is not None:
        yield "the answer is right", completion is not None and _same(completion.answer, problem.answer)
    yield "the task was completed, not given up", completion is not None and completion.status == "success"


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
        execution = self._repl.run(code.text, self._server.call)
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
