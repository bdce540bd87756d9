"""The scenario generator: draws the splits' task specs and turns a spec into a playable task. All from one seed.

A task of several requests is a chain of templates with no app in common and at most one question. No request reads what
another one changes, so they can be fulfilled in any order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

from pydantic import ConfigDict

from tasks.core.config.splits import SPLITS, Split
from tasks.core.seeding import derive_seed
from tasks.core.worlds.pocketworld.authoring.apps import APPS, App, Release, draw_release
from tasks.core.worlds.pocketworld.authoring.state import POOLS, EntityPool, State, populate
from tasks.core.worlds.pocketworld.authoring.templates import (
    HELD_OUT_TEMPLATES,
    KNOWN_TEMPLATES,
    TEMPLATES,
    Clauses,
    Draft,
    Template,
    Unsuitable,
)
from tasks.core.worlds.pocketworld.authoring.vocabulary import FIRST_NAMES, LAST_NAMES, PASSWORD_WORDS
from tasks.core.worlds.pocketworld.settings import PocketworldConfig

Link = tuple[Template, tuple[App, ...]]
NamedLink = tuple[Template, tuple[str, ...]]
JOIN = "+"


def chained(first: Template, apps: tuple[str, ...], length: int, random: Random) -> tuple[str, tuple[str, ...], int]:
    """Draw a chain that begins with `first`. Returns its templates' names joined, all their apps, and its difficulty.

    The difficulty is that of `first`. The other templates are from train and no harder; they use apps that the chain
    does not have yet.
    """
    templates, taken = [first], list(apps)
    while len(templates) < length:
        template, more = random.choice(_fitting(templates, taken))
        templates.append(template)
        taken += more
    return JOIN.join(template.name for template in templates), tuple(taken), first.difficulty


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


def _fitting(chain: list[Template], taken: list[str]) -> list[NamedLink]:
    may_ask = not any(template.asks for template in chain)
    return [
        (template, apps)
        for template in KNOWN_TEMPLATES
        if template.difficulty <= chain[0].difficulty and (may_ask or not template.asks)
        for apps in template.apps
        if not set(apps) & set(taken)
    ]


TASKS_PER_SCENARIO = 3
SCENARIOS: dict[Split, tuple[int, int, int]] = {
    "train": (12, 12, 11),
    "dev": (8, 7, 5),
    "test_normal": (21, 21, 14),
    "test_challenge": (56, 56, 27),
}
"""Scenarios of difficulty 1, 2 and 3 per split at scale 1: 35, 20, 56 and 139, the paper's numbers."""


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


def generate_specs(seed: int, config: PocketworldConfig) -> dict[Split, list[TaskSpec]]:
    """Generate the specs of all splits, in task order."""
    return {split: _generate_split(split, seed, config) for split in SPLITS}


def _generate_split(split: Split, seed: int, config: PocketworldConfig) -> list[TaskSpec]:
    templates = HELD_OUT_TEMPLATES if split == "test_challenge" else KNOWN_TEMPLATES
    random = Random(derive_seed(seed, "scenarios", split))
    chosen: list[tuple[Template, tuple[str, ...]]] = []
    for difficulty, count in enumerate(SCENARIOS[split], start=1):
        fitting = [template for template in templates if template.difficulty == difficulty]
        chosen += _spread(fitting, config.scale * count, random)
    lengths = _chain_lengths(len(chosen), config)
    chains = [chained(*link, length, random) for link, length in zip(chosen, lengths, strict=True)]
    return [
        spec
        for number, (names, apps, level) in enumerate(chains, start=1)
        for spec in _scenario(TaskSpec("", f"{split}_{number:03d}", split, level, names, apps, 0, ""), seed)
    ]


def _chain_lengths(count: int, config: PocketworldConfig) -> list[int]:
    """Return the number of requests per task for each scenario, with the longer tasks spread evenly."""
    longer = [int((number + 1) * config.chained_share) > int(number * config.chained_share) for number in range(count)]
    return [config.chain if is_longer else 1 for is_longer in longer]


def _spread(templates: list[Template], count: int, random: Random) -> list[tuple[Template, tuple[str, ...]]]:
    """Return `count` templates with apps: every template about equally often, its app tuples in turn."""
    orders = {template.name: random.sample(template.apps, len(template.apps)) for template in templates}
    picked = [templates[number % len(templates)] for number in range(count)]
    return [(t, orders[t.name][number // len(templates) % len(t.apps)]) for number, t in enumerate(picked)]


def _scenario(pattern: TaskSpec, seed: int) -> list[TaskSpec]:
    """Generate the tasks of one scenario: different entities, states and releases, and no instruction twice."""
    specs: dict[str, TaskSpec] = {}
    attempt = 0
    while len(specs) < TASKS_PER_SCENARIO:
        attempt += 1
        task_seed = derive_seed(seed, "task", pattern.scenario_id, attempt)
        draft = replace(pattern, task_id=f"{pattern.scenario_id}_{len(specs) + 1}", seed=task_seed)
        instruction = build_problem(draft).instruction
        specs.setdefault(instruction, replace(draft, instruction=instruction))
    return list(specs.values())
