"""What the scripted teachers of the text games solve on the tests, and the best play that FrozenLake's ice allows.

python tests/benchmarks/teachers.py
"""

import argparse
import sys
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tasks.core.config.splits import TEST_SPLITS, Split
from tasks.core.interfaces.world_kind import find_world
from tasks.core.records.comparison import Study, StudyRun
from tasks.core.records.documents import read_document, write_document
from tasks.core.seeding import derive_seed
from tasks.core.text_games.episode import answer_text
from tasks.core.worlds.frozen_lake.kind import FrozenLakeConfig
from tasks.core.worlds.frozen_lake.world import MOVES, NEW_SYMBOLS, SYMBOLS, FrozenLakeKind, FrozenLakeTask, draw_tasks

WORLD_SEED, GAMES = 2502, 10
LONGEST_PLAN = 4
"""A fifth step without looking adds nothing that shows."""


def play(name: str, split: Split, seed: int) -> dict[str, bool]:
    """Return by task whether the teacher solves it, each turn a random beginning of its plan, as it is demonstrated."""
    kind, outcomes = find_world(name), {}
    assert kind.recipe is not None
    teacher, settings = kind.recipe.load().teacher(), kind.settings()
    with TemporaryDirectory() as folder:
        kind.write(settings, WORLD_SEED, Path(folder) / "world")
        world: Any = kind.open(settings, "first", Path(folder) / "world")
        for listed in world.tasks(split):
            task, random = world.task(listed.task_id), Random(derive_seed(seed, listed.task_id))
            episode, done = world.open(task.task_id, random.getrandbits(62)), False
            text = episode.prompt[-1]["content"]
            while not done:
                state = text.rpartition("State:\n")[2].rpartition("\nYou have ")[0]
                if name == "frozen_lake" and task.new_symbols:
                    state = state.translate(str.maketrans(NEW_SYMBOLS, SYMBOLS))
                plan = list(teacher.advice(task, state)) or [random.choice(teacher.actions(task, state))]
                plan = plan[: random.randint(1, settings.max_actions_per_turn)]
                seen = episode.step(answer_text(plan, "I do this."))
                text, done = seen.text + seen.ending, seen.done
            outcomes[f"{task.scenario_id}/{task.task_id}"] = episode.evaluate().success
    return outcomes


def solves(name: str, split: Split) -> float:
    """Return the percentage of `GAMES` games of each task that the teacher solves."""
    return 100 * fmean(won for seed in range(GAMES) for won in play(name, split, seed).values())


def add_to(file: Path, name: str) -> None:
    """Add the teacher to a study's outcomes, a run for each seed with as many games of each task."""
    study = read_document(file, Study)
    known = {run.seed: run for run in study.runs}
    added = []
    for seed, run in known.items():
        games = {
            split: [play(name, split, derive_seed(seed, number)) for number in range(len(run.solved[split]["base"]))]
            for split in TEST_SPLITS
        }
        solved = {
            str(split): {
                "base": tuple("".join(str(int(won[task])) for task in study.tasks[split].split()) for won in each)
            }
            for split, each in games.items()
        }
        added.append(
            StudyRun(
                method="teacher",
                seed=seed,
                command=f"python tests/benchmarks/teachers.py --add-to {file.name}",
                trained=False,
                selected="i000",
                rollouts=0,
                optimizer_steps=0,
                dev_tgc=(),
                solved=solved,
            )
        )
    write_document(file, study.model_copy(update={"runs": (*study.runs, *added)}))


def best(task: FrozenLakeTask, config: FrozenLakeConfig) -> float:
    """Return the highest probability of reaching the goal within an episode, by dynamic programming."""
    ice, cells = "".join(task.map), FrozenLakeKind(config).transitions(task.map)
    moves = np.zeros((len(MOVES), len(ice), len(ice)))
    for cell, move in product(cells, range(len(MOVES))):
        for chance, following, _, _ in cells[cell][move]:
            moves[move, cell, following] += chance
    goal = np.array([float(symbol == "G") for symbol in ice])
    values: dict[tuple[int, int], NDArray[np.float64]] = {}
    for turns, steps in product(range(config.max_turns + 1), range(config.max_actions + 1)):
        reached = [goal]
        for length in range(1, min(LONGEST_PLAN, steps) + 1 if turns else 1):
            ahead = [values[turns - 1, steps - length]]
            for _ in range(length):
                ahead = [move @ value for value in ahead for move in moves]
            reached += ahead
        values[turns, steps] = np.max(reached, axis=0)
    return float(values[config.max_turns, config.max_actions][ice.index("S")])


def main() -> None:
    """Print a line for each world and test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--add-to", type=Path, metavar="STUDY.json", help="add FrozenLake's teacher to these outcomes")
    place = parser.parse_args().add_to
    if place is not None:
        add_to(place, "frozen_lake")
        return
    config = FrozenLakeConfig()
    maps = draw_tasks(config, WORLD_SEED)
    for split in TEST_SPLITS:
        for name in ("frozen_lake", "sokoban", "webshop"):
            if (name, split) != ("sokoban", "test_challenge"):  # its teacher knows rooms of one box, and their symbols
                print(f"{name}, {split}: the teacher solves {solves(name, split):.1f}")
        print(
            f"frozen_lake, {split}: the best play solves {100 * fmean(best(task, config) for task in maps[split]):.1f}"
        )


if __name__ == "__main__":
    main()
