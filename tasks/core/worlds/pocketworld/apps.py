"""The apps as data: tables, operations, and the release (names of calls, parameters and fields) that a task pins."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from tasks.core.worlds.pocketworld.vocabulary import (
    FIELD_LABELS,
    OPERATION_LABELS,
    PAYING_LABELS,
    SENDING_LABELS,
    SHADOW_NOUNS,
)

OperationKind = Literal["list", "find", "create", "update", "delete"]

NUMERIC_FIELDS = frozenset({"id", "number", "amount", "rating"})
"""Fields that hold integers; all others hold text."""


@dataclass(frozen=True)
class Table:
    """Records of one kind. `key` is the field with unique values; `key` and `fields` are canonical words."""

    noun: str
    fields: tuple[str, ...]
    key: str


@dataclass(frozen=True)
class Operation:
    """A call of an app: what it does to which table, and the fields it takes.

    find: any of `fields` (equality); create: all of `fields`; update: the id and all of `fields`; delete: the id.
    """

    kind: OperationKind
    noun: str
    fields: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """Names that a release may give to the call; () means the usual names of its kind."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.labels or OPERATION_LABELS[self.kind]


@dataclass(frozen=True)
class App:
    """An app: its name, tables and operations. Tasks select records from the first table."""

    name: str
    tables: tuple[Table, ...]
    operations: tuple[Operation, ...]

    @property
    def table(self) -> Table:
        return self.tables[0]

    def table_of(self, noun: str) -> Table:
        return next(table for table in self.tables if table.noun == noun)

    def operation(self, kind: OperationKind) -> Operation:
        """Return the app's operation of this kind. Raises StopIteration if it has none."""
        return next(operation for operation in self.operations if operation.kind == kind)


def _crud(name: str, table: Table, created: tuple[str, ...], updated: str, labels: tuple[str, ...] = ()) -> App:
    """Return an app with one table and all five operations; records are found by key or by any other text field."""
    searchable = tuple(field for field in table.fields if field not in NUMERIC_FIELDS)
    operations = (
        Operation("list", table.noun),
        Operation("find", table.noun, searchable),
        Operation("create", table.noun, created, labels),
        Operation("update", table.noun, (updated,)),
        Operation("delete", table.noun),
    )
    return App(name, (table,), operations)


_CONTACTS = Table("contact", ("name", "relation", "number"), "name")
_MESSAGES = Table("message", ("number", "text"), "text")

KNOWN_APPS: tuple[App, ...] = (
    App(
        "phone",
        (_CONTACTS, _MESSAGES),
        (
            Operation("list", "contact"),
            Operation("find", "contact", ("name", "relation")),
            Operation("update", "contact", ("number",)),
            Operation("create", "message", ("number", "text"), SENDING_LABELS),
        ),
    ),
    _crud(
        "payments",
        Table("payment", ("name", "amount", "reason", "status"), "name"),
        ("name", "amount", "reason"),
        "status",
        PAYING_LABELS,
    ),
    _crud("music", Table("song", ("title", "artist", "rating"), "title"), ("title", "artist"), "rating"),
    _crud("notes", Table("note", ("title", "tag"), "title"), ("title", "tag"), "tag"),
    _crud("mail", Table("mail", ("name", "title", "folder"), "title"), ("name", "title"), "folder", SENDING_LABELS),
)
HELD_OUT_APPS: tuple[App, ...] = (
    _crud("todo", Table("item", ("title", "day", "status"), "title"), ("title", "day"), "status"),
    _crud("calendar", Table("event", ("title", "day", "name"), "title"), ("title", "day", "name"), "day"),
)
"""Used only by test_challenge."""
APPS: dict[str, App] = {app.name: app for app in (*KNOWN_APPS, *HELD_OUT_APPS)}

_SHADOW_FIELDS = (
    "tag",
    "day",
    "status",
    "genre",
    "folder",
    "relation",
    "reason",
    "amount",
    "rating",
    "artist",
    "number",
)
_UPDATABLE = ("status", "day", "tag", "folder", "rating", "amount", "genre", "relation")


def shadow_app(name: str, random: Random) -> App:
    """Draw an app that does not exist, for demonstrations: random noun and fields, all five operations."""
    key = random.choice(("title", "title", "name"))
    updated = random.choice(_UPDATABLE)
    others = [field for field in _SHADOW_FIELDS if field != updated]
    fields = [updated, *random.sample(others, random.choice((0, 1, 1)))]
    if key == "title" and random.random() < 0.3:
        fields.append("name")
    random.shuffle(fields)
    table = Table(random.choice(SHADOW_NOUNS), (key, *fields), key)
    created = tuple(
        field for field in table.fields if field != updated or len(table.fields) < 3 or random.random() < 0.4
    )
    return _crud(name, table, created, updated)


@dataclass(frozen=True)
class Release:
    """The names in one task's release of an app."""

    app: App
    calls: tuple[str, ...]
    """One per operation of the app."""
    labels: dict[str, str]
    """Canonical field -> the release's word, for parameters and records alike."""

    def call(self, kind: OperationKind) -> str:
        """Return the name of the app's call of this kind. Raises StopIteration if the app has none."""
        return next(
            name for operation, name in zip(self.app.operations, self.calls, strict=True) if operation.kind == kind
        )

    def operation(self, name: str) -> Operation | None:
        """Return the operation behind a call's name; None if the release has no such call."""
        return next((op for op, call in zip(self.app.operations, self.calls, strict=True) if call == name), None)

    def parameters(self, operation: Operation) -> tuple[str, ...]:
        """Return the names of the call's parameters, in the order of the docs."""
        labels = tuple(self.labels[field] for field in operation.fields)
        return ("id", *labels) if operation.kind in ("update", "delete") else labels

    def docs(self) -> dict[str, str]:
        """Return each call's or record's line of the docs, in their order: records with their fields, then calls."""
        records = {
            t.noun: f"{t.noun}: {', '.join(('id', *map(self.labels.__getitem__, t.fields)))}" for t in self.app.tables
        }
        calls = zip(self.calls, self.app.operations, strict=True)
        return {
            **records,
            "login": "login(password)",
            **{name: self._line(name, operation) for name, operation in calls},
        }

    def _line(self, name: str, operation: Operation) -> str:
        """Return a line such as `find(title?, topic?) -> [note]`."""
        mark = "?" if operation.kind == "find" else ""
        taken = ", ".join(parameter + mark for parameter in self.parameters(operation))
        returned = f" -> [{operation.noun}]" if operation.kind in ("list", "find") else ""
        return f"{name}({taken}){returned}"


CANONICAL_SHARE = 0.4
"""Probability that a release keeps the canonical name of a call or field; the synonyms share the rest equally."""


def draw_release(app: App, random: Random) -> Release:
    """Draw every name of an app and the order of its docs."""
    operations = list(app.operations)
    random.shuffle(operations)
    shuffled = App(app.name, app.tables, tuple(operations))
    calls = tuple(_draw_label(operation.names, random) for operation in operations)
    fields = dict.fromkeys(field for table in app.tables for field in table.fields)
    return Release(shuffled, calls, {field: _draw_label(FIELD_LABELS[field], random) for field in fields})


def canonical_release(app: App) -> Release:
    """Return the release that someone would guess without reading the docs."""
    calls = tuple(operation.names[0] for operation in app.operations)
    return Release(app, calls, {field: FIELD_LABELS[field][0] for table in app.tables for field in table.fields})


def _draw_label(labels: tuple[str, ...], random: Random) -> str:
    return labels[0] if random.random() < CANONICAL_SHARE else random.choice(labels[1:])
