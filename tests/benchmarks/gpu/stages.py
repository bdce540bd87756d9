"""The pipeline's stages in this process and in their order, without DVC: a bare machine with a GPU has none."""

from collections.abc import Callable, Iterator
from pathlib import Path

from flows.dag.stages import STAGES, Stage, stage_label
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.processes.resources import return_freed_memory
from tasks.core.records.layout import Layout

ROOT = Path(__file__).parents[3]
LEFT_OUT = ("version_stages", "report", "record_lineage")


def make_project(folder: Path) -> Layout:
    """Make an empty project whose base policies and interpreters are this checkout's."""
    for name in ("data/base_policies", ".loopline/interpreters"):
        (ROOT / name).mkdir(parents=True, exist_ok=True)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(ROOT / name, target_is_directory=True)
    return Layout(folder)


def run_stages(layout: Layout, params: Params, cache: ProcessCache, after: Callable[[str], None]) -> None:
    """Run all stages of `params` in the project at `layout`, and call `after` with the name of each that is done."""
    for stage, key in runs(params):
        stage.load()(StageContext(layout, stage.inputs_of(params), key, cache))
        return_freed_memory()
        after(stage_label(stage.name, key))


def runs(params: Params) -> Iterator[tuple[Stage, str]]:
    """Yield the runs of all stages: an iteration's together, its evaluation at their end, and then the next one's."""
    per_iteration = sorted(
        (stage for stage in STAGES if stage.each not in ("", "split")),
        key=lambda stage: stage.name == "evaluate_policy",
    )
    once = [stage for stage in STAGES if stage.each in ("", "split") and stage.name not in LEFT_OUT]
    first = min(map(STAGES.index, per_iteration))
    yield from ((stage, "") for stage in once if STAGES.index(stage) < first)
    keys = sorted({key for stage in per_iteration for key in stage.keys(params)})
    yield from ((stage, key) for key in keys for stage in per_iteration if key in stage.keys(params))
    yield from ((stage, key) for stage in once if STAGES.index(stage) > first for key in stage.keys(params))
