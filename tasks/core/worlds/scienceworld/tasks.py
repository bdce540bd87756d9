"""The offered variations, and the contents of a task's line in data/world. Splits: see `ScienceWorldConfig`."""

from collections.abc import Collection, Mapping, Sequence
from itertools import cycle
from random import Random
from typing import Any

from tasks.core.config.splits import SPLITS, Split
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import GameTask, task_names
from tasks.core.worlds.scienceworld.settings import ScienceCounts

HELD_OUT = frozenset(
    {
        "change-the-state-of-matter-of",
        "measure-melting-point-unknown-substance",
        "test-conductivity-of-unknown-substances",
        "find-non-living-thing",
        "grow-fruit",
        "chemistry-mix-paint-tertiary-color",
        "lifespan-longest-lived-then-shortest-lived",
        "identify-life-stages-2",
        "inclined-plane-friction-unnamed-surfaces",
        "mendelian-genetics-unknown-plant",
    }
)
"""Types that only test_challenge has, one for each topic of the paper's table 2."""
_OFFICIAL: dict[Split, str] = {"train": "train", "dev": "dev", "test_normal": "test", "test_challenge": "test"}
_SIZE = 3
"""Tasks per scenario."""


class ScienceTask(GameTask):
    """A variation of a type."""

    type: str
    variation: int
    instruction: str
    gold: tuple[str, ...]
    """The official solution."""


Variation = tuple[str, int]
"""Type and number of an official variation."""


def draw_variations(
    variations: Mapping[str, Mapping[str, Sequence[int]]],
    counts: ScienceCounts,
    seed: int,
    unsolved: Collection[Variation] = (),
) -> dict[Split, list[Variation]]:
    """Draw the variation of every task, three consecutive ones per scenario. `variations`: official, by type and split.

    Types take turns until none has a whole scenario left; `seed` decides which of its scenarios a type gives. A
    scenario with an `unsolved` variation is replaced by the next. Raises ValueError when a split has too few tasks.
    """
    return {split: _drawn(split, variations, getattr(counts, split), seed, unsolved) for split in SPLITS}


def difficulty(gold: Sequence[str]) -> int:
    """Return the difficulty by length of the solution: 1 up to 15 actions, 2 up to 50, 3 above."""
    return 1 + (len(gold) > 15) + (len(gold) > 50)


def listed(split: Split, index: int, **fields: Any) -> ScienceTask:
    """Return the `index`-th task of a split."""
    return ScienceTask(**task_names(split, index), split=split, difficulty=difficulty(fields["gold"]), **fields)


def _drawn(
    split: Split,
    variations: Mapping[str, Mapping[str, Sequence[int]]],
    count: int,
    seed: int,
    unsolved: Collection[Variation],
) -> list[Variation]:
    random = Random(derive_seed(seed, "scienceworld", split))
    types = sorted(name for name in variations if (name in HELD_OUT) == (split == "test_challenge"))
    random.shuffle(types)
    scenarios = {name: _scenarios(name, variations[name][_OFFICIAL[split]]) for name in types}
    for name, of_type in scenarios.items():
        random.shuffle(of_type)
        scenarios[name] = [scenario for scenario in of_type if not any(pair in unsolved for pair in scenario)]
    room = _SIZE * sum(map(len, scenarios.values()))
    if count > room:
        raise ValueError(f"world.scienceworld.counts.{split}: {count} is more than the {room} tasks that there are")
    drawn: list[Variation] = []
    for name in cycle(types):
        if len(drawn) == count:
            break
        if scenarios[name]:
            drawn += scenarios[name].pop()
    return drawn


def _scenarios(name: str, numbers: Sequence[int]) -> list[list[Variation]]:
    """Return the complete scenarios."""
    starts = range(0, len(numbers) - _SIZE + 1, _SIZE)
    return [[(name, number) for number in numbers[start : start + _SIZE]] for start in starts]
