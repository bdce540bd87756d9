"""A profile's stages one after the other in this process: where DVC, Prefect and MLflow are not installed.

    python tests/benchmarks/profile_in_process.py smollm2 FOLDER --set seed=1 [--after STAGE] [--until STAGE]

The same bodies, artifacts and seeds as by `dvc repro`, but for report and lineage. `--until` ends with a stage and
`--after` goes on behind it, in a copy of the folder too: so runs of several seeds share a base that was trained once.
STAGE is a name as `dvc status` prints it: warm_start, score@test_normal. FOLDER/seconds.json: how long each one took.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from stages_in_process import Project, link_policies

from flows.dag.stages import STAGES, Stage, stage_label
from flows.params_file import params_of, write_params
from tasks.core.config.params import Params
from tasks.core.records.files import read_json, write_json

LEFT_OUT = ("version_stages", "report", "record_lineage")


def runs(params: Params) -> Iterator[tuple[Stage, str]]:
    """Every run of a stage in the order of the pipeline: an iteration's stages together, and then the next one's."""
    per_iteration = [stage for stage in STAGES if stage.each not in ("", "split")]
    once = [stage for stage in STAGES if stage.each in ("", "split") and stage.name not in LEFT_OUT]
    first = STAGES.index(per_iteration[0])
    yield from ((stage, "") for stage in once if STAGES.index(stage) < first)
    keys = sorted({key for stage in per_iteration for key in stage.keys(params)})
    yield from ((stage, key) for key in keys for stage in per_iteration if key in stage.keys(params))
    yield from ((stage, key) for stage in once if STAGES.index(stage) > first for key in stage.keys(params))


def chosen(params: Params, until: str | None, after: str | None) -> list[tuple[Stage, str]]:
    """The runs that the command line asks for."""
    found = list(runs(params))
    labels = [stage_label(stage.name, key) for stage, key in found]
    begin, end = (labels.index(label) + 1 if label else None for label in (after, until))
    return found[begin:end]


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a profile's stages in this process.")
    parser.add_argument("profile")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE")
    parser.add_argument("--until")
    parser.add_argument("--after")
    arguments = parser.parse_args()
    params, root = params_of(arguments.profile, arguments.set), arguments.folder
    link_policies(root)
    write_params(root / "params.yaml", params.model_dump(mode="json"))
    project, record = Project(root, params), root / "seconds.json"
    seconds = read_json(record) if record.exists() else {}
    try:
        for stage, key in chosen(params, arguments.until, arguments.after):
            begin, label = time.perf_counter(), stage_label(stage.name, key)
            project.run(stage.name, key)
            seconds[label] = round(time.perf_counter() - begin, 1)
            print(label, seconds[label], "s", flush=True)
            write_json(record, seconds)
    finally:
        project.close()


if __name__ == "__main__":
    main()
