"""Playable tasks: a spec, as data/world/ has it, becomes a problem with its state, releases, requests and solution."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, Self

from pydantic import model_validator

from tasks.core.text_games.task_files import GameTask
from tasks.core.worlds.pocketworld.apps import APPS, App, Release, draw_release
from tasks.core.worlds.pocketworld.clauses import Clause
from tasks.core.worlds.pocketworld.state import POOLS, EntityPool, State, populate
from tasks.core.worlds.pocketworld.templates import TEMPLATES, Clauses, Draft, Template, Unsuitable
from tasks.core.worlds.pocketworld.vocabulary import FIRST_NAMES, LAST_NAMES, PASSWORD_WORDS

Link = tuple[Template, tuple[App, ...]]
NamedLink = tuple[Template, tuple[str, ...]]
JOIN = "+"


def read_chain(names: str, apps: tuple[str, ...]) -> list[NamedLink]:
    """Return a chain's templates with their apps. Raises ValueError for an unknown name or wrong apps."""
    links: list[NamedLink] = []
    rest = list(apps)
    for name in names.split(JOIN):
        template = TEMPLATES.get(name)
        if template is None:
            raise ValueError(f"unknown template {name!r}")
        count = len(template.apps[0])
        link_apps, rest = tuple(rest[:count]), rest[count:]
        if link_apps not in template.apps:
            raise ValueError(f"template {name} has no apps {list(link_apps)}")
        links.append((template, link_apps))
    if rest:
        raise ValueError(f"no template uses the apps {rest}")
    return links


class TaskSpec(GameTask):
    """A line of data/world/<split>.jsonl: everything needed to rebuild the task."""

    template: str
    """Names of the chained templates, joined by "+"."""
    apps: tuple[str, ...]
    """The apps of the first template, then those of the next."""
    seed: int
    """Draws the initial state, the releases and the entities."""
    instruction: str

    @model_validator(mode="after")
    def _fits_its_templates(self) -> Self:
        first = read_chain(self.template, self.apps)[0][0]
        if self.difficulty != first.difficulty:
            raise ValueError(f"difficulty {self.difficulty}, but template {first.name} has {first.difficulty}")
        return self


@dataclass(frozen=True)
class Problem:
    """A playable task: the initial state, the apps' releases, the passwords, and the requests."""

    clauses: Clauses
    state: State
    releases: dict[str, Release]
    passwords: dict[str, str]
    profile: dict[str, str]

    @property
    def instruction(self) -> str:
        return " ".join(clause.words() for clause in self.clauses)

    @property
    def apps(self) -> tuple[str, ...]:
        """Names of the apps that the task needs, in the order of use."""
        return tuple(dict.fromkeys(app.name for clause in self.clauses for app in clause.apps))

    @cached_property
    def solved(self) -> State:
        """The state after all requests are fulfilled."""
        state = self.state.copy()
        for clause in self.clauses:
            clause.apply(state)
        return state

    @cached_property
    def answer(self) -> Any:
        """The right answer; None if no question is asked."""
        answers = (clause.answer(self.state) for clause in self.clauses)
        return next((answer for answer in answers if answer is not None), None)


def draw_problem(links: Sequence[Link], world_apps: tuple[App, ...], pool: EntityPool, seed: int) -> Problem:
    """Draw a task's state, releases and entities; a state that does not suit a template is drawn again.

    Raises Mismatch when these apps can never suit their template.
    """
    random = Random(seed)
    while True:
        state = State({table: rows for app in world_apps for table, rows in populate(app, pool, random).items()})
        try:
            drafts = [template.draw(Draft(state, pool, random), apps) for template, apps in links]
        except Unsuitable:
            continue
        releases = {app.name: draw_release(app, random) for app in world_apps}
        passwords = {app.name: f"{random.choice(PASSWORD_WORDS)}{random.randint(2, 99)}" for app in world_apps}
        profile = {"first_name": random.choice(FIRST_NAMES), "last_name": random.choice(LAST_NAMES)}
        return Problem(tuple(clause for draft in drafts for clause in draft), state, releases, passwords, profile)


def build_problem(spec: TaskSpec) -> Problem:
    """Build the task of a spec. It has every app of the world, including those that the task does not need."""
    links = [(template, tuple(APPS[name] for name in apps)) for template, apps in read_chain(spec.template, spec.apps)]
    return draw_problem(links, tuple(APPS.values()), POOLS[spec.split], spec.seed)


def turn(code: str, thought: str = "") -> str:
    """Return an assistant turn: a thought line if there is a thought, then a code block."""
    block = f"```python\n{code}\n```"
    return f"{thought}\n{block}" if thought else block


def docs_code(apps: Iterable[str]) -> str:
    """Return code that prints the docs of each app."""
    return "\n".join(f'print(apis.api_docs.show_api_doc(app="{app}"))' for app in apps)


def login_code(app: str) -> str:
    """Return code that logs in with the password that the supervisor keeps."""
    return f'apis.{app}.login(password=apis.supervisor.passwords()["{app}"])'


def clause_code(problem: Problem, clause: Clause, logged_in: Iterable[str] = ()) -> str:
    """Return code that logs in where still needed, then does what the clause asks."""
    known = set(logged_in)
    logins = [login_code(app.name) for app in clause.apps if app.name not in known]
    return "\n".join([*logins, clause.code(problem.releases)])


def completion_code(problem: Problem) -> str:
    """Return code that ends the task; a question's answer is in the variable `answer`."""
    return f"apis.supervisor.complete_task({'' if problem.answer is None else 'answer=answer'})"


def oracle(problem: Problem) -> list[str]:
    """Return the turns that solve a task: read the docs, one turn per clause, complete."""
    turns = [docs_code(problem.apps)]
    logged_in: set[str] = set()
    for clause in problem.clauses:
        turns.append(clause_code(problem, clause, logged_in))
        logged_in |= {app.name for app in clause.apps}
    return [turn(code) for code in [*turns, completion_code(problem)]]
