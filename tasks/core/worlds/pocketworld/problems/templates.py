"""Task templates: which clauses, over which apps, at which difficulty. A template draws its entities from the state."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from tasks.core.worlds.pocketworld.problems.apps import NUMERIC_FIELDS, App, Table
from tasks.core.worlds.pocketworld.problems.clauses import (
    AskCount,
    AskExtreme,
    AskField,
    AskTotal,
    Clause,
    Create,
    Delete,
    ForEach,
    Selection,
    Update,
)
from tasks.core.worlds.pocketworld.problems.state import CATEGORY_FIELDS, EntityPool, State

Clauses = tuple[Clause, ...]


class Unsuitable(Exception):  # noqa: N818 - a draw, not a fault
    """This state offers no entity that the template needs; draw another state."""


class Mismatch(Exception):  # noqa: N818 - a draw, not a fault
    """No state suits the template with these apps; draw other apps."""


@dataclass(frozen=True)
class Draft:
    """The parts from which one task's clauses are drawn."""

    state: State
    pool: EntityPool
    random: Random

    def one(self, app: App) -> Selection:
        """Select one record of the app, by its key."""
        key = app.table.key
        row = self.random.choice(self.state[app.name, app.table.noun])
        return Selection(app, key, row[key])

    def every(self, app: App) -> Selection:
        """Select two to four records that share a value of a category field."""
        rows = self.state[app.name, app.table.noun]
        fields = [field for field in app.table.fields if field in CATEGORY_FIELDS]
        if not fields:
            raise Mismatch
        options = [Selection(app, field, value) for field in fields for value in dict.fromkeys(r[field] for r in rows)]
        fitting = [option for option in options if 2 <= len(option.rows(self.state)) <= 4]
        if not fitting:
            raise Unsuitable
        return self.random.choice(fitting)

    def beyond(self, app: App) -> Selection:
        """Select some records, but not all, whose numeric field is below or above a bound."""
        field = self._ranked(app)
        values = sorted({row[field] for row in self.state[app.name, app.table.noun]})
        bound = self.random.choice(values[1:-1])
        return Selection(app, field, bound, self.random.choice(("below", "above")))

    def create(self, app: App) -> Create:
        """Create a record with a key that does not exist yet."""
        operation = app.operation("create")
        assert operation is not None
        table = app.table_of(operation.noun)
        values = {field: self._fresh(app, table, field) for field in operation.fields}
        return Create(app, values)

    def update(self, selection: Selection) -> Update:
        """Set the app's changeable field to a value that no selected record has."""
        operation = selection.app.operation("update")
        assert operation is not None
        (field,) = operation.fields
        return Update(selection, field, self._other(field, {row[field] for row in selection.rows(self.state)}))

    def for_each(self, selection: Selection, target: App) -> ForEach:
        """Copy the fields that both tables have and draw the rest."""
        operation = target.operation("create")
        assert operation is not None
        copied = tuple(field for field in operation.fields if field in selection.app.table.fields)
        if not copied:
            raise Mismatch
        values = {
            field: self.random.choice(self.pool.values[field]) for field in operation.fields if field not in copied
        }
        return ForEach(selection, target, copied, values)

    def message(self, selection: Selection) -> ForEach:
        """Text the selected contacts."""
        return ForEach(selection, selection.app, ("number",), {"text": self.random.choice(self.pool.values["text"])})

    def ask_field(self, selection: Selection) -> AskField:
        """Ask for a field other than the field of the selection."""
        fields = [field for field in selection.app.table.fields if field != selection.field]
        return AskField(selection, self.random.choice(fields))

    def ask_total(self, selection: Selection) -> AskTotal:
        return AskTotal(selection, self._ranked(selection.app))

    def ask_extreme(self, app: App) -> AskExtreme:
        ranked = self._ranked(app)
        end: Literal["highest", "lowest"] = self.random.choice(("highest", "lowest"))
        fields = [field for field in app.table.fields if field != ranked]
        return AskExtreme(app, self.random.choice(fields), ranked, end)

    def _ranked(self, app: App) -> str:
        """Draw a numeric field that can be compared or summed (a phone number cannot)."""
        fields = [field for field in app.table.fields if field in NUMERIC_FIELDS and field != "number"]
        if not fields:
            raise Mismatch
        return self.random.choice(fields)

    def _fresh(self, app: App, table: Table, field: str) -> Any:
        taken = {row[field] for row in self.state[app.name, table.noun]} if field == table.key else set()
        return self._other(field, taken)

    def _other(self, field: str, taken: set[Any]) -> Any:
        while (value := self.random.choice(self.pool.values[field])) in taken:
            pass
        return value


@dataclass(frozen=True)
class Template:
    """A named task pattern."""

    name: str
    difficulty: int
    draw: Callable[[Draft, tuple[App, ...]], Clauses]
    apps: tuple[tuple[str, ...], ...]
    """The tuples of apps that it may be drawn with, all equally long."""

    @property
    def asks(self) -> bool:
        """Whether the task ends with an answer."""
        return self.draw in _QUESTIONS


def _create(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (draft.create(apps[0]),)


def _delete_one(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (Delete(draft.one(apps[0])),)


def _update_one(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (draft.update(draft.one(apps[0])),)


def _ask_field(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (draft.ask_field(draft.one(apps[0])),)


def _message_one(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (draft.message(draft.one(apps[0])),)


def _delete_every(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (Delete(draft.every(apps[0])),)


def _update_every(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (draft.update(draft.every(apps[0])),)


def _count(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (AskCount(draft.every(apps[0])),)


def _total(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (draft.ask_total(draft.every(apps[0])),)


def _message_every(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (draft.message(draft.every(apps[0])),)


def _copy_one(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (draft.for_each(draft.one(apps[0]), apps[1]),)


def _copy_every(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (draft.for_each(draft.every(apps[0]), apps[1]),)


def _create_and_delete(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return draft.create(apps[0]), Delete(draft.one(apps[0]))


def _update_and_create(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return draft.update(draft.one(apps[0])), draft.create(apps[0])


def _create_twice(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return draft.create(apps[0]), draft.create(apps[-1])


def _delete_and_update(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return Delete(draft.every(apps[0])), draft.update(draft.one(apps[1]))


def _delete_and_create(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return Delete(draft.every(apps[0])), draft.create(apps[1])


def _delete_beyond(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (Delete(draft.beyond(apps[0])),)


def _count_beyond(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (AskCount(draft.beyond(apps[0])),)


def _extreme(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return (draft.ask_extreme(apps[0]),)


def _move_every(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    selection = draft.every(apps[0])
    return draft.for_each(selection, apps[1]), Delete(selection)


def _create_and_count(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return draft.create(apps[0]), AskCount(draft.every(apps[1]))


def _update_and_ask(draft: Draft, apps: tuple[App, ...]) -> Clauses:
    return draft.update(draft.one(apps[0])), draft.ask_field(draft.one(apps[1]))


_QUESTIONS = (_ask_field, _count, _total, _count_beyond, _extreme, _create_and_count, _update_and_ask)


def _singles(names: str) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names.split())


def _pairs(pairs: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(pair.split(">")) for pair in pairs.split())


_COPIES = "mail>notes music>notes phone>payments phone>mail payments>mail notes>music"
_TWO_APPS = "notes>mail mail>notes payments>music music>notes notes>payments payments>mail"

KNOWN_TEMPLATES: tuple[Template, ...] = (
    Template("create", 1, _create, _singles("payments music notes mail")),
    Template("delete_one", 1, _delete_one, _singles("payments music notes mail")),
    Template("update_one", 1, _update_one, _singles("phone payments music notes mail")),
    Template("ask_field", 1, _ask_field, _singles("phone payments music notes mail")),
    Template("message_one", 1, _message_one, _singles("phone")),
    Template("delete_every", 2, _delete_every, _singles("payments notes mail")),
    Template("update_every", 2, _update_every, _singles("phone payments notes mail")),
    Template("count", 2, _count, _singles("phone payments notes mail")),
    Template("total", 2, _total, _singles("payments")),
    Template("message_every", 2, _message_every, _singles("phone")),
    Template("copy_one", 2, _copy_one, _pairs(_COPIES)),
    Template("create_and_delete", 2, _create_and_delete, _singles("payments music notes mail")),
    Template("copy_every", 3, _copy_every, _pairs("mail>notes phone>payments phone>mail payments>mail")),
    Template("delete_and_update", 3, _delete_and_update, _pairs("notes>mail mail>notes payments>music notes>payments")),
    Template("create_and_count", 3, _create_and_count, _pairs(_TWO_APPS.replace("payments>music", "music>payments"))),
    Template("delete_beyond", 3, _delete_beyond, _singles("payments music")),
    Template("extreme", 3, _extreme, _singles("payments music")),
)
"""Templates of train, dev and test_normal."""

HELD_OUT_TEMPLATES: tuple[Template, ...] = (
    Template("held_out_create", 1, _create, _singles("todo calendar")),
    Template("held_out_delete_one", 1, _delete_one, _singles("todo calendar")),
    Template("held_out_update_one", 1, _update_one, _singles("todo calendar")),
    Template("held_out_ask_field", 1, _ask_field, _singles("todo calendar")),
    Template("held_out_delete_every", 2, _delete_every, _singles("todo calendar")),
    Template("held_out_update_every", 2, _update_every, _singles("todo calendar")),
    Template("held_out_count", 2, _count, _singles("todo calendar")),
    Template("held_out_create_twice", 2, _create_twice, (("todo", "notes"), ("mail", "todo"), ("todo", "calendar"))),
    Template("held_out_update_and_create", 2, _update_and_create, _singles("todo calendar")),
    Template("held_out_copy_one", 2, _copy_one, _pairs("notes>todo mail>todo music>todo phone>calendar todo>notes")),
    Template(
        "held_out_move_every", 3, _move_every, _pairs("notes>todo mail>todo todo>notes calendar>todo mail>calendar")
    ),
    Template(
        "held_out_delete_and_create", 3, _delete_and_create, _pairs("todo>notes notes>todo mail>calendar todo>mail")
    ),
    Template(
        "held_out_update_and_ask", 3, _update_and_ask, _pairs("todo>phone payments>todo todo>calendar music>todo")
    ),
)
"""Templates of test_challenge: each needs an app that no training task has."""

TEMPLATES: dict[str, Template] = {template.name: template for template in (*KNOWN_TEMPLATES, *HELD_OUT_TEMPLATES)}
