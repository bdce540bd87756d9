"""The tasks of a root: scenarios of three tasks in four splits, from one seed. Pure; no database."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from .people import Person
from .template import CannotDraw, Draw, Showing, Template
from .words import share_of
from .world import World

TASKS_PER_SCENARIO = 3
_SHOWN: dict[str, tuple[Showing, ...]] = {
    "train": ("shared",),
    "dev": ("shared",),
    "test_normal": ("shared",),
    "test_challenge": ("challenge", "hidden"),
    "demonstrations": ("shared", "challenge"),
}


@dataclass(frozen=True)
class PlannedTask:
    """One task to write."""

    task_id: str
    split: str
    template: Template
    person: Person
    draw: Draw


def plan_tasks(world: World, templates: list[Template], counts: dict[str, int], seed: int) -> list[PlannedTask]:
    """Tasks of every split, `counts[split]` each (multiples of 3), in the order of `counts`.

    Beside the four splits there is `demonstrations`: people and words of train, all templates that may be shown.
    Difficulties are mixed. A split goes through all its templates before it takes one again, then with another variant.
    """
    tasks: list[PlannedTask] = []
    for split, count in counts.items():
        usable = [template for template in templates if template.showing in _SHOWN[split]]
        first = _mixed(usable, Random(f"order:{seed}:{split}"))
        if count % TASKS_PER_SCENARIO:
            raise ValueError(f"{split}: {count} tasks are no whole number of scenarios of {TASKS_PER_SCENARIO}")
        for number in range(count // TASKS_PER_SCENARIO):
            turn, place = divmod(number, len(first))
            tasks += _plan_scenario(world, first[place], split, number, turn, seed)
    return tasks


def _mixed(templates: list[Template], rng: Random) -> list[Template]:
    """Templates in random order, but difficulties take turns: a split of three scenarios has all three."""
    shuffled = rng.sample(templates, len(templates))
    turns: dict[str, int] = {}
    for template in shuffled:
        turns[template.name] = sum(shuffled[i].difficulty == template.difficulty for i in range(len(turns)))
    return sorted(shuffled, key=lambda template: turns[template.name])


def _plan_scenario(
    world: World, template: Template, split: str, number: int, turn: int, seed: int
) -> list[PlannedTask]:
    rng = Random(f"scenario:{seed}:{split}:{number}")
    scenario_id = hashlib.sha256(f"{seed}:{split}:{number}:{template.name}".encode()).hexdigest()[:7]
    variants = Random(f"variants:{seed}:{template.name}:{split}").sample(template.variants, len(template.variants))
    variant = variants[turn % len(variants)]
    people = [person for person in world.people if person.share == share_of(split)]
    tasks = []
    for person in rng.sample(people, len(people)):
        with suppress(CannotDraw):
            tasks.append((person, template.draw(rng, world, person, **variant)))
        if len(tasks) == TASKS_PER_SCENARIO:
            break
    else:
        raise ValueError(f"{template.name} {variant}: no entities for {TASKS_PER_SCENARIO} people of {split}")
    return [
        PlannedTask(f"{scenario_id}_{index}", split, template, person, draw)
        for index, (person, draw) in enumerate(tasks, start=1)
    ]
