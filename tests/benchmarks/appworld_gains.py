"""What LOOP gained on AppWorld over training seeds, by difficulty, template and habit.

Reads finished runs of the profile `appworld`, each in its own clone and all with the same world seed:

    loopline configure appworld --set scoring.rollouts_per_task=1 --set seed=1 && loopline run

python tests/benchmarks/appworld_gains.py CLONE [CLONE ...]

A gain's interval is that of the studies, of another draw of training seeds and of tasks of this kind. Its standard
errors over templates and over scenarios are of each task's mean over the seeds.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.parquet as pq
import yaml
from result_file import write_result

from tasks.core.evaluation.differences import BySeed, method_test
from tasks.core.evaluation.tgc_sgc import clustered_estimate
from tasks.core.pages.tables import SPLIT_NAMES
from tasks.core.records.layout import Layout
from tasks.core.worlds.appworld import layout
from tasks.core.worlds.appworld.kind import AppWorldConfig
from tasks.core.worlds.appworld.prepared_root import read_prepared_root

CONFIDENCE = 0.95


def outcomes(run: Path, split: str) -> dict[str, dict[str, float]]:
    """Return of each policy, base and selected, the share of its runs of a task that succeeded."""
    found: dict[str, dict[str, list[bool]]] = {"base": defaultdict(list), "selected": defaultdict(list)}
    columns = ["policy", "task_id", "success"]
    for row in pq.read_table(Layout(run).score_rollouts(split), columns=columns).to_pylist():
        found[row["policy"]][row["task_id"]].append(row["success"])
    return {policy: {task: fmean(runs) for task, runs in tasks.items()} for policy, tasks in found.items()}


def templates(run: Path) -> dict[str, str]:
    """Return the template of every task of the run's world."""
    world = yaml.safe_load(Layout(run).params.read_text(encoding="utf-8"))["world"]
    prepared = read_prepared_root(AppWorldConfig.model_validate(world["appworld"]), Layout(run).world)
    return {task.task_id: _template(prepared.root, task.task_id) for tasks in prepared.tasks.values() for task in tasks}


def _template(root: Path, task_id: str) -> str:
    text = (layout.ground_truth(root, task_id) / "metadata.json").read_text(encoding="utf-8")
    return str(json.loads(text)["template"])


def mean_over_seeds(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {task: fmean(run[task] for run in runs) for task in runs[0]}


def of_split(runs: Sequence[Path], split: str, template_of: Mapping[str, str]) -> dict[str, Any]:
    """Return the gain of a split: of all tasks, of those whose template was trained and of the others, by template."""
    every = [outcomes(run, split) for run in runs]
    base, selected = (mean_over_seeds([run[policy] for run in every]) for policy in ("base", "selected"))
    gains = [100 * (fmean(run["selected"].values()) - fmean(run["base"].values())) for run in every]
    trained = {template_of[task] for task in pq.read_table(Layout(runs[0]).tasks)["task_id"].to_pylist()}
    inside = {task for task in base if template_of[task] in trained}
    parts = {"all": {*base}, "trained_templates": inside, "other_templates": base.keys() - inside}
    return {
        "gain_of_each_seed": _rounded(gains),
        "interval": interval_of(every),
        **{name: gain_of(base, selected, sorted(tasks), template_of) for name, tasks in parts.items() if tasks},
        "templates": by_template(base, selected, template_of),
    }


def interval_of(runs: Sequence[Mapping[str, Mapping[str, float]]]) -> list[float] | None:
    """Return the interval of selected minus base over the seeds and their tasks; None for one seed."""
    base, selected = (by_seed([run[policy] for run in runs]) for policy in ("base", "selected"))
    test = method_test(base, selected, CONFIDENCE)
    return None if test is None or test.low is None else _rounded([test.low, test.high])


def by_seed(runs: Sequence[Mapping[str, float]]) -> BySeed:
    return {
        seed: {(task.partition("_")[0], task): share for task, share in run.items()} for seed, run in enumerate(runs)
    }


def gain_of(
    base: Mapping[str, float], selected: Mapping[str, float], tasks: Sequence[str], template_of: Mapping[str, str]
) -> dict[str, Any]:
    """Return the TGC of both policies on these tasks, and their difference with its standard errors."""
    differences = [selected[task] - base[task] for task in tasks]
    over_templates = clustered_estimate(differences, [template_of[task] for task in tasks])
    over_scenarios = clustered_estimate(differences, [task.partition("_")[0] for task in tasks])
    return {
        "tasks": len(tasks),
        "base": round(100 * fmean(base[task] for task in tasks), 1),
        "selected": round(100 * fmean(selected[task] for task in tasks), 1),
        "gain": round(over_templates.value, 1),
        "se_over_templates": _rounded(over_templates.standard_error),
        "se_over_scenarios": _rounded(over_scenarios.standard_error),
    }


def by_template(
    base: Mapping[str, float], selected: Mapping[str, float], template_of: Mapping[str, str]
) -> dict[str, list[float]]:
    """Return (tasks, base, selected) of every template, in percent, the greatest gain first."""
    members = defaultdict(list)
    for task in base:
        members[template_of[task]].append(task)
    rows = {
        name: [len(tasks), *(round(100 * fmean(policy[task] for task in tasks), 1) for policy in (base, selected))]
        for name, tasks in members.items()
    }
    return dict(sorted(rows.items(), key=lambda row: (row[1][1] - row[1][2], row[0])))


def read_scores(runs: Sequence[Path], split: str) -> list[dict[str, Any]]:
    """Return the scores of a split, of each run."""
    return [json.loads(Layout(run).score(split).read_text(encoding="utf-8")) for run in runs]


def habits(runs: Sequence[Path], split: str) -> dict[str, list[list[float]]]:
    """Return the behaviour figures of base and selected policy, a list with each seed's."""
    scores = read_scores(runs, split)
    names = scores[0]["behaviour"]["base"]
    return {
        name: [[score["behaviour"][policy][name] for score in scores] for policy in ("base", "selected")]
        for name in names
    }


def difficulties(runs: Sequence[Path], split: str) -> dict[str, list[float]]:
    """Return (tasks, base, selected) of each difficulty, means over seeds in percent."""
    scores = read_scores(runs, split)
    names = scores[0]["per_difficulty"]
    return {
        name: [
            scores[0]["per_difficulty"][name]["tasks"],
            *(round(fmean(score["per_difficulty"][name][key] for score in scores), 1) for key in ("base_tgc", "tgc")),
        ]
        for name in names
    }


def _rounded(figures: Any) -> Any:
    if isinstance(figures, tuple | list):
        return [_rounded(figure) for figure in figures]
    return None if figures is None else round(figures, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--name", default="appworld_gains", help="of the result file")
    arguments = parser.parse_args()
    template_of = templates(arguments.runs[0])
    found = {
        split: of_split(arguments.runs, split, template_of)
        | {"difficulties": difficulties(arguments.runs, split), "behaviour": habits(arguments.runs, split)}
        for split in SPLIT_NAMES
    }
    write_result(arguments.name, found)


if __name__ == "__main__":
    main()
