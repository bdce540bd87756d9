"""The pipeline's stages in this process and in their order, without DVC: a bare machine with a GPU has none."""

from collections.abc import Callable, Iterator
from pathlib import Path

from flows.dag.stages import STAGES, Stage, stage_label
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.processes.process_memory import return_freed_memory
from tasks.core.records.layout import Layout

LEFT_OUT = ("version_stages", "report", "record_lineage")
"""Stages about the records of runs that DVC makes."""
ROOT = Path(__file__).parents[3]


def make_project(folder: Path) -> Layout:
    """Make an empty project whose base policies and interpreters are this checkout's."""
    for name in ("data/base_policies", ".loopline/interpreters"):
        (ROOT / name).mkdir(parents=True, exist_ok=True)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(ROOT / name, target_is_directory=True)
    return Layout(folder)


def in_order(params: Params) -> Iterator[tuple[Stage, str]]:
    """Yield every run of a stage with its key: what comes before training, the iterations one by one, the scores."""
    stages = [stage for stage in STAGES if stage.name not in LEFT_OUT]
    first_of_iteration = next(place for place, stage in enumerate(stages) if stage.each)
    yield from ((stage, "") for stage in stages[:first_of_iteration])
    keyed = [stage for stage in stages if stage.each not in ("", "split")]
    for key in sorted({key for stage in keyed for key in stage.keys(params)}):
        yield from ((stage, key) for stage in keyed if key in stage.keys(params))
    last = stages[first_of_iteration:]
    yield from ((stage, key) for stage in last if stage.each in ("", "split") for key in stage.keys(params))


def run_stages(layout: Layout, params: Params, cache: ProcessCache, after: Callable[[str], None]) -> None:
    """Run all stages of `params` in the project at `layout`, and call `after` with the name of each that is done."""
    for stage, key in in_order(params):
        stage.load()(StageContext(layout, stage.inputs_of(params), key, cache))
        return_freed_memory()
        after(stage_label(stage.name, key))
