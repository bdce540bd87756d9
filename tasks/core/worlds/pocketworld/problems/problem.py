"""Playable tasks: a spec, as data/world/ has it, becomes a problem with its state, releases and requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from pydantic import ConfigDict

from tasks.core.config.splits import Split
from tasks.core.worlds.pocketworld.problems.apps import APPS, App, Release, draw_release
from tasks.core.worlds.pocketworld.problems.state import POOLS, EntityPool, State, populate
from tasks.core.worlds.pocketworld.problems.templates import TEMPLATES, Clauses, Draft, Template, Unsuitable
from tasks.core.worlds.pocketworld.problems.vocabulary import FIRST_NAMES, LAST_NAMES, PASSWORD_WORDS

Link = tuple[Template, tuple[App, ...]]
NamedLink = tuple[Template, tuple[str, ...]]
JOIN = "+"


def read_chain(names: str, apps: tuple[str, ...]) -> list[NamedLink]:
    """Return a chain's templates with their apps. Raises KeyError for an unknown name, ValueError for wrong apps."""
    links: list[NamedLink] = []
    rest = list(apps)
    for name in names.split(JOIN):
        template = TEMPLATES[name]
        count = len(template.apps[0])
        link_apps, rest = tuple(rest[:count]), rest[count:]
        if link_apps not in template.apps:
            raise ValueError(f"template {name} has no apps {list(link_apps)}")
        links.append((template, link_apps))
    if rest:
        raise ValueError(f"no template uses the apps {rest}")
    return links


@dataclass(frozen=True)
class TaskSpec:
    """A line of data/world/<split>.jsonl: everything needed to rebuild the task."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    task_id: str
    scenario_id: str
    split: Split
    difficulty: int
    template: str
    """Names of the chained templates, joined by "+"."""
    apps: tuple[str, ...]
    """The apps of the first template, then those of the next."""
    seed: int
    """Draws the initial state, the releases and the entities."""
    instruction: str


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
