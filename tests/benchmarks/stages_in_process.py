"""The pipeline's stages in this process and in their order, artifacts written and all, without DVC."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.dag.stages import STAGES, Stage, find_stage, stage_label
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.processes.resources import return_freed_memory
from tasks.core.records.layout import Layout

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("version_stages", "report", "record_lineage")
ONCE = ("prepare_world", "warm_start", "prepare_policy", "filter_tasks")
"""Stages that make what an iteration reads; preflight makes nothing of it."""
TRAINING = ("collected", "searched", "iteration")
"""The kinds of the stages of an iteration; an evaluation is none."""


class Project:
    """Stages of the project in `root`, with what they keep between them."""

    def __init__(self, root: Path, params: Params) -> None:
        self.layout, self.params, self.cache = make_project(root), params, ProcessCache()

    def run(self, stage: str, key: str = "") -> None:
        """Raises whatever its body raises."""
        run_stage(self.layout, self.params, self.cache, find_stage(stage), key)

    def prepare(self) -> None:
        """Run all that an iteration needs before it."""
        for stage in ONCE:
            self.run(stage)

    def train(self, key: str) -> None:
        """Run the stages of the iteration `key`, in their order."""
        for stage in STAGES:
            if stage.each in TRAINING and key in stage.keys(self.params):
                self.run(stage.name, key)


@contextmanager
def temporary_project(params: Params) -> Iterator[Project]:
    """Make a project that has the shipped base policies, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder), params)
        try:
            yield project
        finally:
            project.cache.close()


def make_project(folder: Path) -> Layout:
    """Make an empty project whose base policies and interpreters are this checkout's."""
    for name in ("data/base_policies", ".loopline/interpreters"):
        (ROOT / name).mkdir(parents=True, exist_ok=True)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(ROOT / name, target_is_directory=True)
    return Layout(folder)


def run_stage(layout: Layout, params: Params, cache: ProcessCache, stage: Stage, key: str) -> None:
    """Run one stage. Raises whatever its body raises."""
    stage.load()(StageContext(layout, stage.inputs_of(params), key, cache))
    return_freed_memory()


def run_stages(layout: Layout, params: Params, cache: ProcessCache, after: Callable[[str], None]) -> None:
    """Run all stages of `params` in the project at `layout`, and call `after` with the name of each that is done."""
    for stage, key in runs(params):
        run_stage(layout, params, cache, stage, key)
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
