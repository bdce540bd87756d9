"""Task templates: which clauses, over which apps, at which difficulty. A template draws its entities from the state."""

from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from tasks.core.worlds.pocketworld.apps import NUMERIC_FIELDS, App, Table
from tasks.core.worlds.pocketworld.clauses import Ask, AskExtreme, Clause, Create, Delete, ForEach, Selection, Update
from tasks.core.worlds.pocketworld.state import EntityPool, State
from tasks.core.worlds.pocketworld.vocabulary import CATEGORIES

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
        fields = [field for field in app.table.fields if field in CATEGORIES]
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
        table = app.table_of(operation.noun)
        return Create(app, {field: self._fresh(app, table, field) for field in operation.fields})

    def delete(self, selection: Selection) -> Delete:
        return Delete(selection)

    def update(self, selection: Selection) -> Update:
        """Set the app's changeable field to a value that no selected record has."""
        (field,) = selection.app.operation("update").fields
        return Update(selection, field, self._other(field, {row[field] for row in selection.rows(self.state)}))

    def copy(self, selection: Selection, target: App) -> ForEach:
        """Copy the fields that both tables have and draw the rest."""
        fields = target.operation("create").fields
        copied = tuple(field for field in fields if field in selection.app.table.fields)
        if not copied:
            raise Mismatch
        values = {field: self.random.choice(self.pool.values[field]) for field in fields if field not in copied}
        return ForEach(selection, target, copied, values)

    def message(self, selection: Selection) -> ForEach:
        """Text the selected contacts."""
        return ForEach(selection, selection.app, ("number",), {"text": self.random.choice(self.pool.values["text"])})

    def ask(self, selection: Selection) -> Ask:
        """Ask for a field other than the field of the selection."""
        fields = [field for field in selection.app.table.fields if field != selection.field]
        return Ask(selection, "field", self.random.choice(fields))

    def count(self, selection: Selection) -> Ask:
        return Ask(selection, "count")

    def total(self, selection: Selection) -> Ask:
        return Ask(selection, "total", self._ranked(selection.app))

    def extreme(self, app: App) -> AskExtreme:
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
    requests: tuple[str, ...]
    """A verb, then how its records are selected ("one", "every", "beyond"; "those": as in the request before), then
    "of 2" for the task's second app. Verbs and ways to select are methods of `Draft`."""
    apps: tuple[tuple[str, ...], ...]
    """The tuples of apps that it may be drawn with, all equally long."""

    @property
    def asks(self) -> bool:
        """Whether the task ends with an answer."""
        return self.requests[-1].split()[0] in ("ask", "count", "total", "extreme")

    def draw(self, draft: Draft, apps: tuple[App, ...]) -> Clauses:
        """Draw the task's clauses. Raises Unsuitable and Mismatch."""
        clauses: list[Clause] = []
        selection: Selection | None = None
        for request in self.requests:
            words, _, second = request.partition(" of ")
            verb, *how = words.split()
            app = apps[1] if second else apps[0]
            if how and how != ["those"]:
                selection = getattr(draft, how[0])(app)
            subject = app if verb in ("create", "extreme") else selection
            clauses.append(getattr(draft, verb)(subject, *([apps[1]] if verb == "copy" else [])))
        return tuple(clauses)


def _read(table: str) -> tuple[Template, ...]:
    """Read lines of name, difficulty, requests, and the apps or pairs of apps."""
    rows = [[part.strip() for part in line.split("|")] for line in table.strip().splitlines()]
    return tuple(
        Template(name, int(level), tuple(does.split(", ")), tuple(tuple(one.split(">")) for one in apps.split()))
        for name, level, does, apps in rows
    )


KNOWN_TEMPLATES = _read("""
create | 1 | create | payments music notes mail
delete_one | 1 | delete one | payments music notes mail
update_one | 1 | update one | phone payments music notes mail
ask_field | 1 | ask one | phone payments music notes mail
message_one | 1 | message one | phone
delete_every | 2 | delete every | payments notes mail
update_every | 2 | update every | phone payments notes mail
count | 2 | count every | phone payments notes mail
total | 2 | total every | payments
message_every | 2 | message every | phone
copy_one | 2 | copy one | mail>notes music>notes phone>payments phone>mail payments>mail notes>music
create_and_delete | 2 | create, delete one | payments music notes mail
copy_every | 3 | copy every | mail>notes phone>payments phone>mail payments>mail
delete_and_update | 3 | delete every, update one of 2 | notes>mail mail>notes payments>music notes>payments
create_and_count | 3 | create, count every of 2 | \
notes>mail mail>notes music>payments music>notes notes>payments payments>mail
delete_beyond | 3 | delete beyond | payments music
extreme | 3 | extreme | payments music
""")
"""Templates of train, dev and test_normal."""

HELD_OUT_TEMPLATES = _read("""
held_out_create | 1 | create | todo calendar
held_out_delete_one | 1 | delete one | todo calendar
held_out_update_one | 1 | update one | todo calendar
held_out_ask_field | 1 | ask one | todo calendar
held_out_delete_every | 2 | delete every | todo calendar
held_out_update_every | 2 | update every | todo calendar
held_out_count | 2 | count every | todo calendar
held_out_create_twice | 2 | create, create of 2 | todo>notes mail>todo todo>calendar
held_out_update_and_create | 2 | update one, create | todo calendar
held_out_copy_one | 2 | copy one | notes>todo mail>todo music>todo phone>calendar todo>notes
held_out_move_every | 3 | copy every, delete those | notes>todo mail>todo todo>notes calendar>todo mail>calendar
held_out_delete_and_create | 3 | delete every, create of 2 | todo>notes notes>todo mail>calendar todo>mail
held_out_update_and_ask | 3 | update one, ask one of 2 | todo>phone payments>todo todo>calendar music>todo
""")
"""Templates of test_challenge: each needs an app that no training task has."""

TEMPLATES: dict[str, Template] = {template.name: template for template in (*KNOWN_TEMPLATES, *HELD_OUT_TEMPLATES)}
