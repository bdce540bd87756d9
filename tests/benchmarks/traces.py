"""Time that traces of sampled rollouts add to an iteration, by the default knobs: a share of its seconds, in one run.

python tests/benchmarks/traces.py

Trains some iterations of the default profile in a temporary folder and records each one's traces in a local database
right after it, as the warm flow does. The first iteration warms both up and does not count.
"""

import time
from collections.abc import Iterator
from statistics import fmean

from result_file import write_result
from stages_in_process import Project, temporary_project

from flows.params_file import params_of
from tasks.core.config.params import Params
from tasks.core.lineage.mlflow_store import open_store
from tasks.core.records.rollout_sets import training_set
from tasks.record_lineage.tracing.recording import TraceRecorder

ITERATIONS = 4


def seconds(params: Params, project: Project) -> Iterator[tuple[float, float, int]]:
    """(wall time of an iteration, of its traces, number of its traces)."""
    layout, store = project.layout, open_store(params.lineage, project.layout.root)
    recorder = TraceRecorder(store, store.client.create_run(store.experiment_id).info.run_id, layout, params)
    project.prepare()
    for key in params.dag.previous:
        times = [time.perf_counter()]
        project.train(key)
        times.append(time.perf_counter())
        traces = recorder.record([training_set(layout, key)])
        times.append(time.perf_counter())
        yield times[1] - times[0], times[2] - times[1], len(traces)


def main() -> None:
    params = params_of("default", [f"iterations={ITERATIONS}"])
    with temporary_project(params) as project:
        trained, traced, counts = zip(*list(seconds(params, project))[1:], strict=True)
    figures = {"traces_per_iteration": fmean(counts), "iteration_s": round(fmean(trained), 2)}
    figures |= {"traces_s": round(fmean(traced), 3), "added_share": round(fmean(traced) / fmean(trained), 4)}
    write_result("traces", figures, packages=("mlflow",))


if __name__ == "__main__":
    main()
