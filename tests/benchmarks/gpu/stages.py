"""The pipeline's stages in this process and in their order, without DVC: a bare machine with a GPU has none."""

from collections.abc import Callable
from pathlib import Path

from profile_in_process import runs

from flows.dag.stages import stage_label
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.processes.process_memory import return_freed_memory
from tasks.core.records.layout import Layout

ROOT = Path(__file__).parents[3]


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
