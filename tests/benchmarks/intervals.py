"""How often intervals of a difference between two methods miss the truth, and how wide they are.

python tests/benchmarks/intervals.py --studies 1000

Studies are simulated with a known truth, no difference: TGC of two methods, tasks of three to a scenario, three
evaluation runs. Everybody shares the tasks' difficulty. Each training run has a level of its own (its standard
deviation, in logits, is `run`), and solves some scenarios better than another run; a method may do so in all its seeds
(`method`), which training seeds alone don't show. Both are drawn anew in each study: the next study has other seeds and
other tasks of the kind. `larger` is the project's own `method_test`. The others are what it could be in its place.
"""

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from result_file import write_result
from scipy.special import expit, stdtrit
from tqdm import tqdm

from tasks.core.evaluation.differences import BySeed, method_test

CONFIDENCE = 0.95
TASKS, RUNS = 3, 3
"""Tasks of a scenario, and evaluation runs of a task."""
SEEDS, SCENARIOS, RUN_LEVELS, METHOD_LEVELS = (2, 3, 5), (56, 19), (0.0, 0.15, 0.4), (0.0, 0.7)
Floats = npt.NDArray[np.float64]


def played(rng: np.random.Generator, seeds: int, scenarios: int, run: float, method: float) -> Floats:
    """Return the mean success of two methods, [2, seeds, scenarios, tasks of a scenario]."""
    difficulty = rng.normal(size=(scenarios, 1)) + 1.5 * rng.normal(size=(scenarios, TASKS))
    of_method = method * rng.normal(size=(2, 1, scenarios, 1))
    of_run = run * rng.normal(size=(2, seeds, 1, 1)) + 0.5 * rng.normal(size=(2, seeds, scenarios, 1))
    success: Floats = rng.binomial(RUNS, expit(difficulty + of_method + of_run)) / RUNS
    return success


def by_seed(success: Floats) -> BySeed:
    """Return [seeds, scenarios, tasks] as `method_test` takes it."""
    return {
        seed: {(f"s{scenario}", f"s{scenario}_{task}"): float(row[scenario, task]) for scenario, task in tasks(row)}
        for seed, row in enumerate(success)
    }


def tasks(row: Floats) -> Iterator[tuple[int, int]]:
    return itertools.product(*map(range, row.shape))


def reaches(success: Floats) -> dict[str, tuple[float, float]]:
    """Return each interval's centre and reach, in points."""
    test = method_test(*map(by_seed, success), CONFIDENCE)
    assert test is not None and test.high is not None
    differences = 100 * (success[1] - success[0])
    centre = float(differences.mean())
    seeds, scenarios = _student(differences.mean((1, 2))), _student(differences.mean((0, 2)))
    return {
        "larger": (test.difference, test.high - test.difference),
        "seeds alone": (centre, seeds),
        "scenarios alone": (centre, scenarios),
        "fewer degrees of freedom": (centre, _crossed(differences)),
        "both in quadrature": (centre, float(np.hypot(seeds, scenarios))),
    }


def _student(values: Floats) -> float:
    return _quantile(len(values) - 1) * float(values.std(ddof=1)) / len(values) ** 0.5


def _quantile(freedom: int) -> float:
    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def _crossed(differences: Floats) -> float:
    """Return the reach of two-way clustering with min(seeds, scenarios) - 1 degrees of freedom."""
    cells = differences.mean(2) - differences.mean()
    by_seed, by_scenario, by_both = (_clustered(sums) for sums in (cells.sum(1), cells.sum(0), cells.ravel()))
    variance = max(by_seed + by_scenario - by_both, by_seed, by_scenario) / cells.size**2
    return _quantile(min(cells.shape) - 1) * float(variance) ** 0.5


def _clustered(sums: Floats) -> float:
    return len(sums) / (len(sums) - 1) * float(np.sum(sums**2))


def cell(studies: int, number: int, seeds: int, scenarios: int, run: float, method: float) -> dict[str, Any]:
    """Return the share of studies whose interval leaves 0 out, and the mean reach in points, of each interval."""
    rng = np.random.default_rng(number)
    found = [reaches(played(rng, seeds, scenarios, run, method)) for _ in range(studies)]
    figures = {
        name: {
            "false_alarms": round(float(np.mean([abs(one[name][0]) > one[name][1] for one in found])), 3),
            "reach": round(float(np.mean([one[name][1] for one in found])), 1),
        }
        for name in found[0]
    }
    return {"seeds": seeds, "scenarios": scenarios, "run": run, "method": method, **figures}


def extremes(cells: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the smallest and the largest share of false alarms of each interval."""
    names = [name for name, value in cells[0].items() if isinstance(value, dict)]
    alarms = {name: [row[name]["false_alarms"] for row in cells] for name in names}
    return {name: {"least": min(shares), "most": max(shares)} for name, shares in alarms.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000, help="simulated in each cell")
    arguments = parser.parse_args()
    worlds = list(itertools.product(SEEDS, SCENARIOS, RUN_LEVELS, METHOD_LEVELS))
    cells = [cell(arguments.studies, number, *world) for number, world in enumerate(tqdm(worlds, desc="cells"))]
    write_result("intervals", {"studies": arguments.studies, "false_alarms": extremes(cells), "cells": cells})


if __name__ == "__main__":
    main()
