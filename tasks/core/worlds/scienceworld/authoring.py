"""Writing the world's folder: the offered variations, each with its description and official solution."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import TypedDict

from tqdm import tqdm

from tasks.core.config.splits import Split
from tasks.core.processes.usable_cores import usable_cores
from tasks.core.text_games.task_files import write_tasks
from tasks.core.worlds.scienceworld.interpreter import java_executable, python_executable
from tasks.core.worlds.scienceworld.pool import SimulatorPool
from tasks.core.worlds.scienceworld.settings import ScienceCounts, ScienceWorldConfig
from tasks.core.worlds.scienceworld.tasks import ScienceTask, Variation, draw_variations, listed

_HEAP_MIB = 1536
"""Heap of a JVM that searches for solutions and keeps many paths in memory."""
_SECONDS = 3600.0
"""Limit for all solutions of a type."""

OfType = tuple[str, list[int]]
"""A type and some of its variations."""


class Solution(TypedDict):
    """A task's instruction, the official actions that solve it, and the number of moves they take."""

    instruction: str
    gold: list[str]
    moves: int


def write_scienceworld(config: ScienceWorldConfig, seed: int, folder: Path) -> None:
    """Draw the tasks, ask the simulator for their solutions (up to a minute each), and write them.

    Where an official solution does not complete its own task (mendelian-genetics-unknown-plant 458 ends with a wrong
    focus, and -100), the next scenario of the type stands in: what is offered can be solved.
    Raises ValueError for counts that are too large, InterpreterUnavailable and WorldFault.
    """
    with closing(SimulatorPool(python_executable(), java_executable())) as pool:
        drawn, solutions = _drawn_and_solved(pool, config.counts, seed)
    tasks = {
        split: [_offered(split, index, pair, solutions[pair]) for index, pair in enumerate(part)]
        for split, part in drawn.items()
    }
    write_tasks(folder, tasks)
    moves = [solutions[pair]["moves"] for part in drawn.values() for pair in part]
    print(f"prepare_world: {over_the_limit(moves, config.max_moves)}")


def _offered(split: Split, index: int, pair: Variation, solved: Solution) -> ScienceTask:
    name, variation = pair
    return listed(split, index, type=name, variation=variation, instruction=solved["instruction"], gold=solved["gold"])


def over_the_limit(moves: Collection[int], limit: int | None) -> str:
    """Return a sentence on how many official solutions, with these `moves`, a limit cuts off (None: no limit)."""
    solved = f"official solutions solve all {len(moves)} tasks"
    if limit is None:
        return solved
    return f"{solved}; {sum(taken > limit for taken in moves)} of them take more than {limit} moves, and are cut off"


def _drawn_and_solved(
    pool: SimulatorPool, counts: ScienceCounts, seed: int
) -> tuple[dict[Split, list[Variation]], dict[Variation, Solution]]:
    """Draw variations and solve them; draw again without the unsolved ones until all are solved."""
    variations = pool.take().ask({"types": True})["variations"]
    solutions: dict[Variation, Solution] = {}
    unsolved: set[Variation] = set()
    while True:
        drawn = draw_variations(variations, counts, seed, unsolved)
        asked = sorted({pair for part in drawn.values() for pair in part} - solutions.keys())
        if not asked:
            return drawn, solutions
        new_solutions = _solutions(pool, asked)
        solutions |= new_solutions
        unsolved |= set(asked) - new_solutions.keys()


def _solutions(pool: SimulatorPool, pairs: Sequence[Variation]) -> dict[Variation, Solution]:
    """Return all existing solutions, from JVMs that serve no agent; each type is solved whole, in order.

    The order matters: what the simulator has found out about the house changes what it finds next.
    """
    types = [(name, [number for _, number in of]) for name, of in groupby(pairs, lambda pair: pair[0])]
    cores = usable_cores()
    with (
        tqdm(desc="solutions", total=len(types), unit="type", leave=False) as shown,
        ThreadPoolExecutor(cores) as threads,
    ):
        parts = threads.map(
            lambda part: _solved(pool, part, shown.update), (types[core::cores] for core in range(cores))
        )
        return {pair: solution for part in parts for pair, solution in part.items()}


def _solved(pool: SimulatorPool, types: Sequence[OfType], advance: Callable[[], object]) -> dict[Variation, Solution]:
    solved: dict[Variation, Solution] = {}
    if not types:
        return solved
    solver = pool.start(_HEAP_MIB)
    try:
        for name, numbers in types:
            solutions = solver.ask({"solve": name, "variations": numbers}, _SECONDS)["solutions"]
            solved |= {
                (name, number): solution
                for number, solution in zip(numbers, solutions, strict=True)
                if solution is not None
            }
            advance()
    finally:
        solver.end()
    return solved
