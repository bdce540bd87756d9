"""Healthy and provoked runs of three worlds, recorded: what the collapse monitor's limits are fitted and tried on.

python tests/benchmarks/collapse_runs.py WORLD {healthy,provoked} SEED [SEED ...]

Plays and trains in a temporary folder, without evaluations and scores, and puts the metrics of every iteration into
results/collapse_runs/WORLD-KIND-SEED.csv. `collapse_thresholds.py` reads these.
"""

import argparse
import csv
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.configure import params_of, write_params
from flows.dag.execution import run_body
from flows.dag.stages import find_stage
from tasks.core.interfaces.stage import ProcessCache, SerialExecutor
from tasks.core.records.documents import Metrics, read_document
from tasks.core.records.dotted import dotted_numbers
from tasks.core.records.layout import Layout

RUNS = Path(__file__).parent / "results" / "collapse_runs"
POLICIES = Path(__file__).parents[2] / "data/base_policies"
SMALL = {"collection.tasks_per_iteration": 8, "collection.rollouts_per_task": 8, "monitor.information.responses": 16}
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "pocketworld": ("default", SMALL | {"collection.tasks_per_iteration": 16, "collection.rollouts_per_task": 6}),
    "bandit": ("bandit", SMALL | {"policy.source": str(POLICIES / "bandit")}),
    "sokoban": ("sokoban", SMALL | {"policy.source": str(POLICIES / "sokoban")}),
}
"""By world: a profile and what is changed in it, in either kind of run."""
PROVOKED = {
    "update.learning_rate": 2e-2,
    "update.warmup_steps": 80,
    "update.epochs": 4,
    "update.loss.clip_epsilon": 0.9,
    "update.loss.clip_epsilon_high": 10,
    "update.max_grad_norm": 10,
    "update.kl_stop.limit": 10_000,
}
"""What nobody should do: a learning rate that rises to 20 times the default, twice the epochs, no limit to a step."""
WALL_CLOCK = {"tokens_per_s", "update_s"}


def record(world: str, kind: str, seed: int, iterations: int) -> list[dict[str, float]]:
    """Figures of every iteration until the end, or until an update diverges."""
    profile, changed = WORLDS[world]
    chosen = changed | (PROVOKED if kind == "provoked" else {}) | {"seed": seed, "iterations": iterations}
    params = params_of(profile, [f"{name}={value}" for name, value in chosen.items()])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_params(root / "params.yaml", params.model_dump(mode="json"))
        (root / "data").mkdir()
        (root / "data/base_policies").symlink_to(POLICIES)
        return list(_played(root, list(params.previous)))


def _played(root: Path, keys: list[str]) -> Iterator[dict[str, float]]:
    cache = ProcessCache()

    def run(stage: str, key: str = "") -> None:
        run_body(find_stage(stage), key, root, cache, lambda stage, params: SerialExecutor())

    try:
        for stage in ("prepare_world", "prepare_policy", "filter_tasks"):
            run(stage)
        for key in keys:
            for stage in ("collect_rollouts", "filter_advantages", "update_policy"):
                run(stage, key)
            metrics = read_document(Layout(root).metrics(key), Metrics)
            yield {"iteration": int(key[1:]), **dotted_numbers(metrics.model_dump(mode="json", exclude=WALL_CLOCK))}
    except ValueError as error:
        print(f"ended: {error}")
    finally:
        cache.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=WORLDS)
    parser.add_argument("kind", choices=("healthy", "provoked"))
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--iterations", type=int, default=16)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    RUNS.mkdir(parents=True, exist_ok=True)
    for seed in arguments.seeds:
        rows = record(arguments.world, arguments.kind, seed, arguments.iterations)
        path = RUNS / f"{arguments.world}-{arguments.kind}-{seed}.csv"
        names = list(dict.fromkeys(name for row in rows for name in row))
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        print(path.name, *(f"{row['mean_return']:.2f}" for row in rows))


if __name__ == "__main__":
    main()
