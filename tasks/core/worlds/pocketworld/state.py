"""The state of an episode: plain tables, populated at random; and the difference between two states."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from tasks.core.worlds.pocketworld.apps import App, Table
from tasks.core.worlds.pocketworld.vocabulary import CATEGORIES, PAIRS

Row = dict[str, Any]
Place = tuple[str, str]
"""(app, noun): one table."""


class State(dict[Place, list[Row]]):
    """Place -> records. A record maps canonical fields, and `id`, to text or integers. No id is given twice."""

    def __init__(self, tables: Mapping[Place, list[Row]]) -> None:
        super().__init__(tables)
        self._last_id = max((row["id"] for rows in self.values() for row in rows), default=0)

    def copy(self) -> "State":
        """Return a state that shares nothing with this one and continues its ids."""
        copied = State({table: [dict(row) for row in rows] for table, rows in self.items()})
        copied._last_id = self._last_id
        return copied

    def insert(self, app: str, table: Table, values: Row) -> Row:
        """Add a record with a new id; fields without a value get their default. Returns the record itself."""
        self._last_id += 1
        row = {"id": self._last_id}
        row |= {field: values[field] if field in values else default(field) for field in table.fields}
        self[app, table.noun].append(row)
        return row


_RANGES = {"amount": (2, 99), "rating": (1, 9), "number": (10, 99)}
DEFAULTS: Row = {"status": "open", "rating": 1, "folder": "sent"}
"""Values of fields that a create call does not take; other fields get their pool's first word or lowest number."""


@dataclass(frozen=True)
class EntityPool:
    """The values that a split draws from. Each split has its own share of the two-word names and titles."""

    residues: frozenset[int]
    """Which combinations: (left word + 3 * right word) modulo 7, by position in the word lists."""

    @cached_property
    def values(self) -> dict[str, list[Any]]:
        """Field -> all its possible values."""
        pairs = {field: self._combinations(*words) for field, words in PAIRS.items()}
        words = {field: list(pool) for field, pool in CATEGORIES.items()}
        return {**pairs, **words, **{field: list(range(low, high + 1)) for field, (low, high) in _RANGES.items()}}

    def _combinations(self, lefts: tuple[str, ...], rights: tuple[str, ...]) -> list[str]:
        numbered = ((i + 3 * j, f"{left} {right}") for i, left in enumerate(lefts) for j, right in enumerate(rights))
        return [pair for number, pair in numbered if number % 7 in self.residues]


POOLS = {
    "train": EntityPool(frozenset({0, 1, 2, 3})),
    "dev": EntityPool(frozenset({4})),
    "test_normal": EntityPool(frozenset({5})),
    "test_challenge": EntityPool(frozenset({6})),
}


def populate(app: App, pool: EntityPool, random: Random) -> dict[Place, list[Row]]:
    """Draw five to seven records per table; keys and numbers are unique, other values repeat."""
    return {(app.name, table.noun): _populate_table(table, pool, random) for table in app.tables}


def _populate_table(table: Table, pool: EntityPool, random: Random) -> list[Row]:
    count = random.randint(5, 7)
    columns = {field: _column(field, field == table.key, count, pool, random) for field in table.fields}
    start = random.randint(1, 60)
    return [{"id": start + i, **{field: column[i] for field, column in columns.items()}} for i in range(count)]


def _column(field: str, unique: bool, count: int, pool: EntityPool, random: Random) -> list[Any]:
    """Draw a column: numbers and keys are unique, other fields have three different values."""
    if unique or field in _RANGES:
        return random.sample(pool.values[field], count)
    distinct = random.sample(pool.values[field], 3)
    return [*distinct, *random.choices(distinct, k=count - 3)]


def default(field: str) -> Any:
    """Return the value of a field that its create call does not take."""
    if field in DEFAULTS:
        return DEFAULTS[field]
    return CATEGORIES[field][0] if field in CATEGORIES else _RANGES[field][0]


Content = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Difference:
    """Changes between two states, by (app, noun). Added records are compared without their ids."""

    added: dict[Place, Counter[Content]]
    removed: dict[Place, frozenset[int]]
    updated: dict[Place, dict[tuple[int, str], Any]]
    """(id, field) -> new value."""


def difference(before: State, after: State) -> Difference:
    """Compare two states table by table; leave out tables without a change."""
    added: dict[Place, Counter[Content]] = {}
    removed: dict[Place, frozenset[int]] = {}
    updated: dict[Place, dict[tuple[int, str], Any]] = {}
    for place, rows in before.items():
        if rows == after[place]:
            continue
        old, new = ({row["id"]: row for row in table} for table in (rows, after[place]))
        if fresh := Counter(_content(row) for key, row in new.items() if key not in old):
            added[place] = fresh
        if gone := frozenset(old.keys() - new.keys()):
            removed[place] = gone
        if cells := {(i, f): new[i][f] for i in old.keys() & new.keys() for f in old[i] if old[i][f] != new[i][f]}:
            updated[place] = cells
    return Difference(added, removed, updated)


def _content(row: Row) -> Content:
    return tuple((field, value) for field, value in row.items() if field != "id")
