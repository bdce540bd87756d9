"""A scenario template: a drawing of entities, an oracle that is a demonstration as well, and what it must change."""

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from .paging import all_pages
from .people import Person
from .world import World

Change = Callable[[Any], None]
"""Gets the model collection of one task and makes its rows."""
Showing = Literal["shared", "challenge", "hidden"]
"""shared: in train, dev and test_normal, with words of their own each; challenge: in test_challenge alone, but
demonstrated; hidden: in test_challenge alone, and in no demonstration either."""


class CannotDraw(Exception):  # noqa: N818
    """This person's world has no entities that fit the template; another person's may."""


@dataclass(frozen=True)
class Rows:
    """The rows of one model that the task changes, each by the values of some fields.

    "user.email" follows a link; "approved_at?" says whether the field has a value at all.
    """

    added: list[dict[str, Any]] = field(default_factory=list)
    updated: list[dict[str, Any]] = field(default_factory=list)
    """As they are afterwards."""
    removed: list[dict[str, Any]] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    """The fields in which an updated row may differ."""


@dataclass(frozen=True)
class Draw:
    """One task's entities."""

    instruction: str
    public: dict[str, Any]
    """Entities that the instruction names; the oracle gets them as variables of these names. JSON values."""
    answer: Any = None
    """The answer of a question; None for a task without one."""
    expect: dict[str, Rows] = field(default_factory=dict)
    """All that may change, by model ("venmo.Transaction")."""
    change: Change | None = None
    """Rows that only this task's world has."""

    @property
    def private(self) -> dict[str, Any]:
        """Facts that only the evaluation knows."""
        return {"expected": {model: asdict(rows) for model, rows in self.expect.items()}}


class Scenario:
    """A template's source; see `Template`.

    `solution(apis, ...)` takes the keys of `Draw.public` and a token `<app>_token` per app. A comment at its margin
    begins a turn of the demonstration and is the agent's thought; the last turn completes the task. Its source is what
    the task's ground truth holds, so it uses nothing of its module.
    """

    DIFFICULTY: ClassVar[int]
    APPS: ClassVar[tuple[str, ...]]
    VARIANTS: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    """Choices that one scenario fixes and its three tasks share: arguments of `draw`."""
    SHOWING: ClassVar[Showing] = "shared"
    draw: ClassVar[Callable[..., Draw]]
    """draw(rng, world, person, **variant). Raises CannotDraw."""
    solution: ClassVar[Callable[..., None]]


@dataclass(frozen=True)
class Template:
    """A scenario template, read from its class."""

    name: str
    difficulty: int
    apps: tuple[str, ...]
    variants: tuple[Mapping[str, Any], ...]
    showing: Showing
    draw: Callable[..., Draw]
    solution_body: str

    def compiled_solution(self, public: Mapping[str, Any]) -> str:
        """`def solution(apis, requester)` with the public data and the logins written out."""
        given = [f"{name} = {value!r}" for name, value in public.items()]
        lines = [*given, *_login_lines(self.apps), self.solution_body.rstrip()]
        if "all_pages(" in self.solution_body:
            lines.insert(0, _ALL_PAGES)
        return "def solution(apis, requester):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"


def read_template(scenario: type[Scenario]) -> Template:
    """Read a template from its class."""
    return Template(
        name=re.sub(r"(?<!^)(?=[A-Z])", "_", scenario.__name__).lower(),
        difficulty=scenario.DIFFICULTY,
        apps=scenario.APPS,
        variants=scenario.VARIANTS,
        showing=scenario.SHOWING,
        draw=scenario.draw,
        solution_body=_body(scenario.solution),
    )


def phrased(rng: Any, *texts: str) -> str:
    """One of several wordings of an instruction."""
    return str(rng.choice(texts))


def circle(world: World, person: Person, relationship: str) -> list[Person]:
    """The people who are this to the person."""
    return [world.person(other) for other in person.related(relationship)]


def _body(function: Callable[..., Any]) -> str:
    """The function's source without its head, dedented; comments stay."""
    lines = inspect.getsource(function).splitlines()
    end_of_head = next(number for number, line in enumerate(lines) if line.rstrip().endswith(":"))
    return textwrap.dedent("\n".join(lines[end_of_head + 1 :]))


def _login_lines(apps: tuple[str, ...]) -> list[str]:
    lines = [
        "profile = apis.supervisor.show_profile()",
        "passwords = {one['account_name']: one['password'] for one in apis.supervisor.show_account_passwords()}",
    ]
    for app in apps:
        username = "phone_number" if app == "phone" else "email"
        call = f"apis.{app}.login(username=profile['{username}'], password=passwords['{app}'])"
        lines.append(f"{app}_token = {call}['access_token']")
    return lines


_ALL_PAGES = "def all_pages(api, **arguments):\n" + textwrap.indent(_body(all_pages), "    ")

EVALUATION = '''import json


def value(record, path):
    for name in path.removesuffix("?").split("."):
        record = getattr(record, name)
    if path.endswith("?"):
        return record is not None
    return number(record)


def number(one):
    return float(one) if isinstance(one, (int, float)) and not isinstance(one, bool) else one


def table(records, wanted):
    """Rows of records by the fields of the rows that are wanted, in an order of their own."""
    paths = sorted(wanted[0])
    return sorted(([value(record, path) for path in paths] for record in records), key=repr)


def plain(wanted):
    return sorted(([number(row[path]) for path in sorted(row)] for row in wanted), key=repr)


def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    predicted_answer = json.loads(models.end.supervisor.Task.first().answer)
    with test("assert answers match."):
        test.answer(predicted_answer, ground_truth_answer)
    expected = private_data.expected
    with test(f"assert only these changed: {', '.join(sorted(expected)) or 'nothing'}."):
        test.case(models.changed_model_names(), "==", set(expected))
    for model, wanted in expected.items():
        records = dict(zip(("added", "updated", "removed"), models.changed_records(model)))
        others = [kind for kind in records if not wanted[kind]]
        with test(f"assert no other rows of {model} were {' or '.join(others)}."):
            test.case([len(records[kind]) for kind in others], "==", [0] * len(others))
        for kind in records:
            if wanted[kind]:
                with test(f"assert exactly the right rows of {model} were {kind}."):
                    test.case(table(records[kind], wanted[kind]), "==", plain(wanted[kind]))
        if wanted["updated"]:
            with test(f"assert the updated rows of {model} are otherwise unchanged."):
                changed = [models.changed_field_names(model, one.id) for one in records["updated"]]
                test.case(set().union(*changed) - set(wanted["fields"]), "==", set())
'''
"""evaluation.py of every task."""
