"""The trusted side of an episode: answers the agent's API calls and keeps the state and the log."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.core.sandbox import ApiError
from tasks.core.worlds.pocketworld.problems.apps import NUMERIC_FIELDS, Operation, Release
from tasks.core.worlds.pocketworld.problems.problem import Problem
from tasks.core.worlds.pocketworld.problems.state import Row

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Completion:
    """Arguments of the agent's call to complete_task."""

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
            ("api_docs", "list_apps"): ((), self._list_apps),
            ("api_docs", "list_apis"): (("app",), self._list_apis),
            ("api_docs", "show_api_doc"): (("app", "api"), self._show_api_doc),
        }

    def call(self, app: str, name: str, args: list[Any], kwargs: Arguments) -> Any:
        """Answer a call with a JSON value. Raises ApiError with a short message for any mistake in it."""
        try:
            answer = self._answer(app, name, args, kwargs)
        except ApiError:
            self.log.append((f"{app}.{name}", True))
            raise
        self.log.append((f"{app}.{name}", False))
        return answer

    def _answer(self, app: str, name: str, args: list[Any], kwargs: Arguments) -> Any:
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

    def _call_system(self, app: str, name: str, kwargs: Arguments) -> Any:
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

    def _login(self, release: Release, kwargs: Arguments) -> None:
        if set(kwargs) != {"password"}:
            raise ApiError(_takes(release.app.name, "login", ("password",)))
        if kwargs["password"] != self.problem.passwords[release.app.name]:
            raise ApiError("The password is wrong.")
        self._logged_in.add(release.app.name)

    def _operate(self, release: Release, operation: Operation, name: str, kwargs: Arguments) -> Any:
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

    def _list_apps(self) -> list[str]:
        return [*sorted(_SYSTEM_APPS), *self.problem.releases]

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


def _checked(release: Release, operation: Operation, name: str, kwargs: Arguments) -> Row:
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
