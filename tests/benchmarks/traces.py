"""What the traces of sampled rollouts add to an iteration, by the default knobs: a share of its seconds, in one run.

python tests/benchmarks/traces.py

Trains some iterations of the default profile in a temporary folder and records each one's traces in a local database
right after it, as the warm flow does. The first iteration warms both up and does not count.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from result_file import write_result

from flows.configure import params_of, write_params
from flows.dag.execution import run_body
from flows.dag.stages import find_stage
from tasks.core.interfaces.stage import ProcessCache, SerialExecutor
from tasks.core.records.layout import Layout
from tasks.core.records.rollout_sets import training_set
from tasks.lineage.tracing.recording import TraceRecorder
from tasks.lineage.tracking.mlflow_store import open_store

ITERATIONS = 4
POLICIES = Path(__file__).parents[2] / "data/base_policies"


def seconds(root: Path) -> Iterator[tuple[float, float, int]]:
    """(wall time of an iteration, of its traces, number of its traces)."""
    params = params_of("default", [f"iterations={ITERATIONS}"])
    write_params(root / "params.yaml", params.model_dump(mode="json"))
    (root / "data").mkdir()
    (root / "data/base_policies").symlink_to(POLICIES)
    cache, layout, store = ProcessCache(), Layout(root), open_store(params.lineage, root)
    recorder = TraceRecorder(store, store.client.create_run(store.experiment_id).info.run_id, layout, params)

    def run(stage: str, key: str = "") -> None:
        run_body(find_stage(stage), key, root, cache, lambda stage, params: SerialExecutor())

    for stage in ("prepare_world", "warm_start", "prepare_policy", "begin_courses", "preflight", "filter_tasks"):
        run(stage)
    for key in params.previous:
        times = [time.perf_counter()]
        for stage in ("collect_rollouts", "filter_advantages", "update_policy"):
            run(stage, key)
        times.append(time.perf_counter())
        traces = recorder.record([training_set(layout, key)])
        times.append(time.perf_counter())
        yield times[1] - times[0], times[2] - times[1], len(traces)
    cache.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trained, traced, counts = zip(*list(seconds(Path(folder)))[1:], strict=True)
    figures = {"traces_per_iteration": fmean(counts), "iteration_s": round(fmean(trained), 2)}
    figures |= {"traces_s": round(fmean(traced), 3), "added_share": round(fmean(traced) / fmean(trained), 4)}
    write_result("traces", figures, packages=("mlflow",))


if __name__ == "__main__":
    main()
