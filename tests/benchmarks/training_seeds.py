"""Training with several seeds: learning curves as a picture, base and selected policy as figures.

Reads finished runs, each in its own clone, made by

    loopline configure default habits --set seed=1 && loopline run

python tests/benchmarks/training_seeds.py CLONE [CLONE ...] [--picture docs/pictures/learning_curve.svg]

A seed takes hours where the model is large: `--name NAME` writes another result file, `--keep` keeps its other seeds,
and a run may end with one of the test splits (`dvc repro score@test_normal`). A gain's 95% interval is that of the
studies, of another draw of seeds and of tasks of this kind; none for one seed. Each run's row has what it takes to make
it again: the gains by scenario.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow.parquet as pq
import yaml
from result_file import RESULTS, write_result

from tasks.core.evaluation.differences import METRICS, Means, method_test
from tasks.core.evaluation.scored_rows import outcomes_by_policy
from tasks.core.pages.tables import SPLIT_NAMES
from tasks.core.records.schemas import BASE_POLICY, OUTCOMES, SELECTED_POLICY

matplotlib.use("svg")
from matplotlib import pyplot

MEASURES = ("base_tgc", "tgc", "tgc_se", "tgc_gain", "tgc_gain_se", "base_sgc", "sgc", "sgc_se")
SHARES = ("base_mean_return", "mean_return")
CONFIDENCE = 0.95
Row = dict[str, Any]


def curves(run: Path) -> Any:
    """data/learning_curves.csv as a numpy array with named columns; NaN where an iteration was not evaluated."""
    return np.genfromtxt(run / "data/learning_curves.csv", delimiter=",", names=True)


def figures(run: Path) -> Row:
    params = yaml.safe_load((run / "params.yaml").read_text(encoding="utf-8"))
    selection = json.loads((run / "data/selection.json").read_text(encoding="utf-8"))
    result = {key: params[key] for key in ("seed", "iterations")}
    result |= {key: selection[key] for key in ("iteration", "dev_tgc", "dev_sgc")}
    result["last_dev_tgc"] = selection["candidates"][-1]["dev_tgc"]
    for file in filter(Path.exists, (run / f"data/scores/{split}.json" for split in SPLIT_NAMES)):
        split, scores = file.stem, json.loads(file.read_text(encoding="utf-8"))
        result |= {f"{split}_{measure}": rounded(scores[measure], 1) for measure in MEASURES}
        result |= {f"{split}_{measure}": rounded(scores[measure], 3) for measure in SHARES}
        result[f"{split}_gains"] = gains(file.with_name(f"{split}_rollouts.parquet"), split)
    return result


def gains(rollouts: Path, split: str) -> dict[str, dict[str, float]]:
    """By metric and scenario, selected minus base in points: means over tasks and evaluation runs."""
    played = outcomes_by_policy(pq.read_table(rollouts, columns=OUTCOMES.names).to_pylist())
    found: dict[str, dict[str, float]] = {}
    for metric, means_of in METRICS.items():
        base, selected = (by_scenario(means_of(played[split, policy])) for policy in (BASE_POLICY, SELECTED_POLICY))
        found[metric] = {name: round(100 * (selected[name] - base[name]), 3) for name in sorted(base)}
    return found


def by_scenario(means_of_tasks: Means) -> dict[str, float]:
    tasks: dict[str, list[float]] = {}
    for (scenario, *_), value in means_of_tasks.items():
        tasks.setdefault(scenario, []).append(value)
    return {scenario: statistics.mean(values) for scenario, values in tasks.items()}


def rounded(figure: float | None, digits: int) -> float | None:
    return None if figure is None else round(figure, digits)


def means(runs: list[Row]) -> dict[str, float]:
    """Mean of every score that all runs have (not of the standard errors, which are of one run's score)."""
    shared = [key for key in runs[0] if all(key in run for run in runs)]
    keys = [key for key in shared if key.startswith(tuple(SPLIT_NAMES)) and not key.endswith(("_se", "_gains"))]
    return {key: round(statistics.mean(run[key] for run in runs), 3) for key in keys}


def gain_intervals(runs: list[Row], metric: str) -> dict[str, list[float] | None]:
    """The interval of the gain, in points, of each split whose gains all runs have; None for one seed."""
    splits = [split for split in SPLIT_NAMES if all(f"{split}_gains" in run for run in runs)]
    return {split: interval([run[f"{split}_gains"][metric] for run in runs]) for split in splits}


def interval(runs: list[dict[str, float]]) -> list[float] | None:
    """The interval of the mean gain; of each run, the gains by scenario."""
    selected = {seed: {(name,): gain / 100 for name, gain in run.items()} for seed, run in enumerate(runs)}
    base = {seed: dict.fromkeys(means, 0.0) for seed, means in selected.items()}
    test = method_test(base, selected, CONFIDENCE)
    return None if test is None or test.low is None or test.high is None else [round(test.low, 1), round(test.high, 1)]


def recorded(name: str) -> list[Row]:
    """The runs of a result file; none where it is missing."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8"))["runs"] if file.exists() else []


def draw(runs: list[Path], picture: Path) -> None:
    """Training return and dev TGC over the iterations, a line per run."""
    matplotlib.rcParams["svg.hashsalt"] = "loopline"
    figure, axes = pyplot.subplots(1, 2, figsize=(8.6, 2.9))
    for number, run in enumerate(runs):
        table, seed = curves(run), figures(run)["seed"]
        evaluated = ~np.isnan(table["dev_tgc"])
        axes[0].plot(table["iteration"], 100 * table["mean_return"], color=f"C{number}", label=f"seed {seed}")
        axes[1].plot(table["iteration"][evaluated], table["dev_tgc"][evaluated], "o-", color=f"C{number}", ms=3)
    axes[0].set(xlabel="iteration", ylabel="mean return of rollouts (%)", ylim=(0, 100))
    axes[1].set(xlabel="iteration", ylabel="dev TGC (%)", ylim=(0, 100))
    axes[0].legend(frameon=False, loc="lower right")
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.xaxis.get_major_locator().set_params(integer=True)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--name", default="training_seeds", help="of the result file")
    parser.add_argument("--keep", action="store_true", help="the file's runs of other seeds")
    arguments = parser.parse_args()
    if arguments.picture:
        draw(arguments.runs, arguments.picture)
    runs = [figures(run) for run in arguments.runs]
    if arguments.keep:
        seeds = {run["seed"] for run in runs}
        runs = sorted([*runs, *(run for run in recorded(arguments.name) if run["seed"] not in seeds)], key=by_seed)
    write_result(arguments.name, summary(runs))


def summary(runs: list[Row]) -> Row:
    """The rows of the runs with their means and the intervals of their gains."""
    intervals = {f"{metric}_gain_interval": gain_intervals(runs, metric) for metric in METRICS}
    return {"runs": runs, "mean": means(runs), **intervals}


def by_seed(run: Row) -> int:
    return int(run["seed"])


if __name__ == "__main__":
    main()
