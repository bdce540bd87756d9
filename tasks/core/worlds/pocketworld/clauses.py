"""The requests of a task: selections and clauses. A clause has words, an effect on a state, and code.

Code is written with the names of a given release per app, so that a demonstrator may also write it with guessed names.
No line is indented: loops fit on one line.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tasks.core.worlds.pocketworld.apps import App, Release
from tasks.core.worlds.pocketworld.state import Row, State

Releases = Mapping[str, Release]
"""App name -> the names to write code with."""


@dataclass(frozen=True)
class Selection:
    """Records of an app's first table: one record by its key, or all that meet a condition."""

    app: App
    field: str
    value: Any
    comparison: Literal["equal", "below", "above"] = "equal"

    @property
    def single(self) -> bool:
        return self.field == self.app.table.key

    def words(self) -> str:
        article = "the" if self.single else "every"
        bound = "" if self.comparison == "equal" else f"{self.comparison} "
        return f"{article} {self.app.table.noun} with {self.field} {bound}{self.value} in {self.app.name}"

    def rows(self, state: State) -> list[Row]:
        return [row for row in state[self.app.name, self.app.table.noun] if self._meets(row[self.field])]

    def _meets(self, value: Any) -> bool:
        if self.comparison == "equal":
            return bool(value == self.value)
        return bool(value < self.value if self.comparison == "below" else value > self.value)

    def code(self, releases: Releases) -> str:
        """Return an expression for the list of records."""
        release = releases[self.app.name]
        label = release.labels[self.field]
        if self.comparison == "equal":
            return f"apis.{self.app.name}.{release.call('find')}({label}={literal(self.value)})"
        sign = "<" if self.comparison == "below" else ">"
        return f"[x for x in apis.{self.app.name}.{release.call('list')}() if x[{literal(label)}]{sign}{self.value}]"


def literal(value: Any) -> str:
    """Return a Python literal with double quotes."""
    return f'"{value}"' if isinstance(value, str) else str(value)


class Clause(ABC):
    """Something to do or to find out."""

    @property
    @abstractmethod
    def apps(self) -> tuple[App, ...]:
        """The apps that the clause needs."""

    @abstractmethod
    def words(self) -> str:
        """Return the clause's sentence in the instruction."""

    def apply(self, state: State) -> None:  # noqa: B027 - an optional hook
        """Change the state as requested. A question changes nothing."""

    def answer(self, state: State) -> Any:
        """Return the right answer in this state; None for a clause that asks nothing."""
        return None

    @abstractmethod
    def code(self, releases: Releases) -> str:
        """Return a line of code that fulfils the clause; a question's line sets `answer`."""


@dataclass(frozen=True)
class SelectionClause(Clause):
    """A clause about selected records of one app."""

    selection: Selection

    @property
    def apps(self) -> tuple[App, ...]:
        return (self.selection.app,)


@dataclass(frozen=True)
class Create(Clause):
    """Add one record with given values."""

    app: App
    values: dict[str, Any]
    """Field -> value, for exactly the fields of the app's create call."""

    @property
    def apps(self) -> tuple[App, ...]:
        return (self.app,)

    def words(self) -> str:
        noun = _with_article(self.app.operation("create").noun)
        return (
            f"Add {noun} with {_listed(f'{name} {value}' for name, value in self.values.items())} to {self.app.name}."
        )

    def apply(self, state: State) -> None:
        state.insert(self.app.name, self.app.table_of(self.app.operation("create").noun), self.values)

    def code(self, releases: Releases) -> str:
        return _create_call(releases[self.app.name], {name: literal(value) for name, value in self.values.items()})


@dataclass(frozen=True)
class Delete(SelectionClause):
    """Delete the selected records."""

    def words(self) -> str:
        return f"Delete {self.selection.words()}."

    def apply(self, state: State) -> None:
        table = state[self.selection.app.name, self.selection.app.table.noun]
        gone = {row["id"] for row in self.selection.rows(state)}
        table[:] = [row for row in table if row["id"] not in gone]

    def code(self, releases: Releases) -> str:
        app = self.selection.app.name
        call = f'apis.{app}.{releases[app].call("delete")}(id=x["id"])'
        return f"for x in {self.selection.code(releases)}: {call}"


@dataclass(frozen=True)
class Update(SelectionClause):
    """Set one field of the selected records."""

    field: str
    value: Any

    def words(self) -> str:
        return f"Set the {self.field} to {self.value} for {self.selection.words()}."

    def apply(self, state: State) -> None:
        for row in self.selection.rows(state):
            row[self.field] = self.value

    def code(self, releases: Releases) -> str:
        release = releases[self.selection.app.name]
        values = f'id=x["id"], {release.labels[self.field]}={literal(self.value)}'
        call = f"apis.{self.selection.app.name}.{release.call('update')}({values})"
        return f"for x in {self.selection.code(releases)}: {call}"


@dataclass(frozen=True)
class ForEach(SelectionClause):
    """Add a record to another table for each selected record: some fields copied, the others given."""

    target: App
    copied: tuple[str, ...]
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def apps(self) -> tuple[App, ...]:
        return (self.selection.app,) if self.target == self.selection.app else (self.selection.app, self.target)

    def words(self) -> str:
        noun = _with_article(self.target.operation("create").noun)
        parts = [f"the same {name}" for name in self.copied] + [
            f"{name} {value}" for name, value in self.values.items()
        ]
        return f"For {self.selection.words()}, add {noun} with {_listed(parts)} to {self.target.name}."

    def apply(self, state: State) -> None:
        table = self.target.table_of(self.target.operation("create").noun)
        for row in self.selection.rows(state):
            state.insert(self.target.name, table, {**{name: row[name] for name in self.copied}, **self.values})

    def code(self, releases: Releases) -> str:
        source = releases[self.selection.app.name]
        copied = {name: f"x[{literal(source.labels[name])}]" for name in self.copied}
        given = {name: literal(value) for name, value in self.values.items()}
        return f"for x in {self.selection.code(releases)}: {_create_call(releases[self.target.name], copied | given)}"


@dataclass(frozen=True)
class Ask(SelectionClause):
    """Ask for a field of one record, for the number of the selected records, or for the sum of a numeric field."""

    what: Literal["field", "count", "total"]
    field: str = ""

    def words(self) -> str:
        if self.what == "count":
            return f"Count {self.selection.words()}."
        total = "total " if self.what == "total" else ""
        return f"What is the {total}{self.field} of {self.selection.words()}?"

    def answer(self, state: State) -> Any:
        rows = self.selection.rows(state)
        if self.what == "count":
            return len(rows)
        return sum(row[self.field] for row in rows) if self.what == "total" else rows[0][self.field]

    def code(self, releases: Releases) -> str:
        rows = self.selection.code(releases)
        if self.what == "count":
            return f"answer=len({rows})"
        label = literal(releases[self.selection.app.name].labels[self.field])
        return f"answer=sum([x[{label}] for x in {rows}])" if self.what == "total" else f"answer={rows}[0][{label}]"


@dataclass(frozen=True)
class AskExtreme(Clause):
    """Ask for a field of the record with the highest or lowest value of a numeric field."""

    app: App
    field: str
    ranked: str
    end: Literal["highest", "lowest"]

    @property
    def apps(self) -> tuple[App, ...]:
        return (self.app,)

    def words(self) -> str:
        record = f"the {self.app.table.noun} with the {self.end} {self.ranked} in {self.app.name}"
        return f"What is the {self.field} of {record}?"

    def answer(self, state: State) -> Any:
        pick = max if self.end == "highest" else min
        return pick(state[self.app.name, self.app.table.noun], key=lambda row: row[self.ranked])[self.field]

    def code(self, releases: Releases) -> str:
        release = releases[self.app.name]
        pick = "max" if self.end == "highest" else "min"
        rows = f"apis.{self.app.name}.{release.call('list')}()"
        ranked, wanted = literal(release.labels[self.ranked]), literal(release.labels[self.field])
        return f"answer={pick}({rows}, key=lambda x: x[{ranked}])[{wanted}]"


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _create_call(release: Release, values: dict[str, str]) -> str:
    """Return a create call with its arguments in the docs' order; `values` are expressions."""
    fields = release.app.operation("create").fields
    arguments = ", ".join(f"{release.labels[name]}={values[name]}" for name in fields)
    return f"apis.{release.app.name}.{release.call('create')}({arguments})"


def _listed(parts: Any) -> str:
    *others, last = list(parts)
    return f"{', '.join(others)} and {last}" if others else str(last)
