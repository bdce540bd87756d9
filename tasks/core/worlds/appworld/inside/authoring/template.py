"""A scenario template: one module of `scenarios` with a drawing of entities, an oracle and an evaluation."""

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from .paging import all_pages

Change = Callable[[Any], None]
"""Gets the model collection of one task and makes its rows."""


@dataclass(frozen=True)
class Draw:
    """One task's entities."""

    instruction: str
    public: dict[str, Any]
    """Entities that the instruction names; the oracle gets them as variables of these names. JSON values."""
    private: dict[str, Any] = field(default_factory=dict)
    """Entities that only the evaluation knows. JSON values; no key may be the name of a dict method."""
    answer: Any = None
    """The answer of a question; None for a task without one."""
    change: Change | None = None
    """Rows that only this task's world has."""


@dataclass(frozen=True)
class Template:
    """A scenario template, read from its module.

    The module holds DIFFICULTY, APPS, VARIANTS (choices that one scenario fixes and its three tasks share) and
    draw(rng, world, person, **variant) -> Draw; solution(apis, ...) takes the keys of `Draw.public` and a token
    `<app>_token` per app; evaluate(test, public_data, private_data, main_user, models, ground_truth_answer).
    The source of the last two is what the task's ground truth holds, so they use nothing of their module.
    """

    name: str
    difficulty: int
    apps: tuple[str, ...]
    variants: tuple[Mapping[str, Any], ...]
    draw: Callable[..., Draw]
    solution_body: str
    evaluation_body: str

    def compiled_solution(self, public: Mapping[str, Any]) -> str:
        """`def solution(apis, requester)` with the public data and the logins written out."""
        given = [f"{name} = {value!r}" for name, value in public.items()]
        lines = [*given, *_login_lines(self.apps), self.solution_body.rstrip()]
        if "all_pages(" in self.solution_body:
            lines.insert(0, _ALL_PAGES)
        return "def solution(apis, requester):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"

    def evaluation(self) -> str:
        """evaluation.py: the answer first, then the template's own tests."""
        return _EVALUATION_HEAD + textwrap.indent(self.evaluation_body.rstrip(), "    ") + "\n"


def read_template(module: ModuleType) -> Template:
    """Read a template from its module."""
    return Template(
        name=module.__name__.rsplit(".", 1)[-1],
        difficulty=module.DIFFICULTY,
        apps=module.APPS,
        variants=module.VARIANTS,
        draw=module.draw,
        solution_body=_body(module.solution),
        evaluation_body=_body(module.evaluate),
    )


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

_EVALUATION_HEAD = """import json


def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    predicted_answer = json.loads(models.end.supervisor.Task.first().answer)
    with test("assert answers match."):
        test.answer(predicted_answer, ground_truth_answer)
"""
