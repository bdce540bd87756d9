"""Healthy and provoked runs of three worlds, recorded: what the collapse monitor's limits are fitted and tried on.

python tests/benchmarks/collapse_runs.py [PROFILE ...]     (bandit frozen_lake sokoban)
python tests/benchmarks/collapse_runs.py --healthy FOLDER  (a project that was trained, and did not collapse)

Plays and trains in temporary folders, without evaluations and scores. What the monitor watches of every iteration goes
to tasks/core/collapse/recorded_runs.csv, a run at a time: killed, the same command goes on with the run that it was
at. `recorded_runs.py` reads them, `collapse_thresholds.py` fits.
"""

import argparse
import csv
import itertools
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from recorded_runs import RECORDED, Run, read_runs
from stages_in_process import Project, temporary_project

from flows.params_file import params_of
from flows.profile_stack import read_mapping
from tasks.core.learner.learner import UpdateDiverged
from tasks.core.records.documents import read_document
from tasks.core.records.files import replacing
from tasks.core.records.layout import Layout
from tasks.core.records.training import Metrics, WatchedStats, watched

ROOT = Path(__file__).parents[2]
PROFILES = ("bandit", "frozen_lake", "sokoban")
SEEDS = {"healthy": (1, 2, 3, 4, *range(10, 20)), "provoked": (1, 2, *range(10, 20))}
ITERATIONS = 12
SMALL = {"iterations": ITERATIONS, "collection.tasks_per_iteration": 8, "collection.rollouts_per_task": 8}
"""RAGEN's prompts, half of its rollouts per prompt, in either kind of run; all else as in the world's profile."""
PROVOKED = {
    "update.learning_rate": 2e-2,
    "update.warmup_steps": 80,
    "update.epochs": 4,
    "update.loss.clip_epsilon": 0.9,
    "update.loss.clip_epsilon_high": 10,
    "update.max_grad_norm": 10,
    "update.kl_stop.limit": 10_000,
}
"""Settings of no sane run: a learning rate that rises to 20 times the default, twice the epochs, no limit to a step."""


def record(profile: str, kind: str, seed: int) -> list[WatchedStats]:
    """Figures of every iteration until the end, or until an update diverges."""
    chosen = SMALL | (PROVOKED if kind == "provoked" else {}) | {"seed": seed}
    params = params_of(profile, [f"{name}={value}" for name, value in chosen.items()])
    with temporary_project(params) as project:
        project.prepare()
        return list(_trained(project, params.dag.previous))


def _trained(project: Project, keys: Iterable[str]) -> Iterator[WatchedStats]:
    try:
        for key in keys:
            project.train(key)
            yield watched(read_document(project.layout.metrics(key), Metrics))
    except UpdateDiverged as error:
        print(f"ended: {error}")


def _append(run: Run, root: Path = ROOT) -> None:
    """Write the file anew with one more run of the code in `root`: there is never half of one in it."""
    before = RECORDED.read_text(encoding="utf-8") if RECORDED.exists() else None
    names = ["profile", "kind", "seed", "commit", "iteration", *WatchedStats.model_fields]
    head = {"profile": run.profile, "kind": run.kind, "seed": run.seed, "commit": commit(root)}
    with replacing(RECORDED) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        if before is None:
            writer.writeheader()
        else:
            stream.write(before)
        for iteration, figures in enumerate(run.history, 1):
            writer.writerow({**head, "iteration": iteration, **_rounded(figures)})


def _rounded(figures: WatchedStats) -> dict[str, Any]:
    return {name: value and f"{value:.6g}" for name, value in figures.model_dump().items()}


def commit(root: Path = ROOT) -> str:
    """The commit of the code that plays, trains and fits."""
    return subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=root, text=True).strip()


def planned() -> list[tuple[str, int]]:
    """Kind and seed of a world's runs; kinds in turns, so that what was recorded when time ended is balanced."""
    pairs = [(seed, kind) for kind, seeds in SEEDS.items() for seed in seeds]
    return [(kind, seed) for seed, kind in sorted(pairs)]


def finished(root: Path) -> Run:
    """The run of the project in `root`, as far as it went. Figures that its metrics.json do not have are left out."""
    params, layout = read_mapping(root / "params.yaml"), Layout(root)
    profile = (params.get("profiles") or ["default"])[-1]
    keys = itertools.takewhile(lambda key: layout.metrics(key).exists(), params["previous"])
    return Run(profile, "healthy", params["seed"], [watched(read_document(layout.metrics(k), Metrics)) for k in keys])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", metavar="PROFILE", default=PROFILES, help=", ".join(PROFILES))
    parser.add_argument("--healthy", type=Path, metavar="FOLDER", help="record this run in place of new ones")
    arguments = parser.parse_args()
    if arguments.healthy:
        _append(finished(arguments.healthy), arguments.healthy)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    done = {(run.profile, run.kind, run.seed) for run in read_runs()}
    for profile, (kind, seed) in itertools.product(arguments.profiles, planned()):
        if (profile, kind, seed) not in done:
            history = record(profile, kind, seed)
            _append(Run(profile, kind, seed, history))
            print(profile, kind, seed, *(f"{figures.mean_return:.2f}" for figures in history), flush=True)


if __name__ == "__main__":
    main()
