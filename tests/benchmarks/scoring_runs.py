"""How wide a score's standard error is with fewer evaluation runs of every task than were played.

    python tests/benchmarks/scoring_runs.py CLONE

CLONE holds a finished run with several evaluation runs (`scoring.rollouts_per_task`). Standard errors over scenarios,
in points: those of all runs, and of the runs taken one by one (root mean square). A gain's variance is S + N/n, between
scenarios and from sampling in n plays of a task. Three training seeds with one run each have three plays of a task and
come to S + N/3, where all have the policy of this seed.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from result_file import write_result

from tasks.core.evaluation.scored_rows import outcomes_by_policy
from tasks.core.evaluation.tgc_sgc import Estimate, Outcome, sgc, sgc_gain, tgc, tgc_gain
from tasks.core.pages.tables import SPLIT_NAMES
from tasks.core.records.schemas import BASE_POLICY, OUTCOMES, SELECTED_POLICY

SEEDS = 3
Played = Sequence[Outcome]
MEASURES: dict[str, Callable[[Played, Played], Estimate]] = {
    "tgc": lambda selected, _: tgc(selected),
    "sgc": lambda selected, _: sgc(selected),
    "tgc_gain": tgc_gain,
    "sgc_gain": sgc_gain,
}


def error_of(measure: str, selected: Played, base: Played, runs: Sequence[int]) -> float:
    """Return the standard error that these evaluation runs alone would give, in points."""
    parts = ([each for each in played if each.evaluation_run in runs] for played in (selected, base))
    error = MEASURES[measure](*parts).standard_error
    assert error is not None
    return error


def errors(measure: str, selected: Played, base: Played) -> dict[str, float]:
    """Return standard errors of all runs, of one, and of the mean of three seeds with all runs and with one each."""
    runs = sorted({each.evaluation_run for each in selected})
    several = error_of(measure, selected, base, runs)
    single = statistics.fmean(error_of(measure, selected, base, [run]) ** 2 for run in runs) ** 0.5
    sampling = max(0.0, single**2 - several**2) / (1 - 1 / len(runs))
    between = single**2 - sampling
    of_seeds = {plays: (between + sampling / plays) ** 0.5 for plays in (SEEDS * len(runs), SEEDS)}
    all_runs, one_run = of_seeds.values()
    found = {"all_runs": several, "one_run": single, "seeds_all_runs": all_runs, "seeds_one_run": one_run}
    return {name: round(error, 2) for name, error in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Standard errors of scores by the number of evaluation runs.")
    parser.add_argument("clone", type=Path)
    scores = parser.parse_args().clone / "data/scores"
    result: dict[str, dict[str, dict[str, float]]] = {}
    for split in SPLIT_NAMES:
        rows = pq.read_table(scores / f"{split}_rollouts.parquet", columns=OUTCOMES.names).to_pylist()
        played = outcomes_by_policy(rows)
        selected, base = played[split, SELECTED_POLICY], played[split, BASE_POLICY]
        result[split] = {measure: errors(measure, selected, base) for measure in MEASURES}
    write_result("scoring_runs", result)


if __name__ == "__main__":
    main()
