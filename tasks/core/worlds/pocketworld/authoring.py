"""The scenario generator: draws the splits' task specs, all from one seed, and writes data/world/.

A task of several requests is a chain of templates with no app in common and at most one question. No request reads what
another one changes, so they can be fulfilled in any order.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

from tasks.core.config.splits import SPLITS, Split
from tasks.core.records.files import replacing
from tasks.core.seeding import derive_seed
from tasks.core.worlds.pocketworld.kind import PocketworldConfig
from tasks.core.worlds.pocketworld.problem import JOIN, NamedLink, TaskSpec, build_problem
from tasks.core.worlds.pocketworld.templates import HELD_OUT_TEMPLATES, KNOWN_TEMPLATES, Template


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


def write_pocketworld(config: PocketworldConfig, seed: int, folder: Path) -> None:
    """Generate the tasks of all splits and write them."""
    write_specs(folder, generate_specs(seed, config))


def write_specs(folder: Path, specs: dict[Split, list[TaskSpec]]) -> None:
    """Write `<split>.jsonl` for each split; the folder appears whole or not at all."""
    with replacing(folder) as temporary:
        temporary.mkdir()
        for split, tasks in specs.items():
            lines = (json.dumps(spec.model_dump(), sort_keys=True) + "\n" for spec in tasks)
            (temporary / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")


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
        for spec in _scenario(
            seed, scenario_id=f"{split}_{number:03d}", split=split, difficulty=level, template=names, apps=apps
        )
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


def _scenario(seed: int, **common: Any) -> list[TaskSpec]:
    """Generate the tasks of one scenario: different entities, states and releases, and no instruction twice."""
    specs: dict[str, TaskSpec] = {}
    attempt = 0
    while len(specs) < TASKS_PER_SCENARIO:
        attempt += 1
        scenario = common["scenario_id"]
        task_seed = derive_seed(seed, "task", scenario, attempt)
        draft = TaskSpec(task_id=f"{scenario}_{len(specs) + 1}", seed=task_seed, instruction="", **common)
        instruction = build_problem(draft).instruction
        specs.setdefault(instruction, draft.model_copy(update={"instruction": instruction}))
    return list(specs.values())
