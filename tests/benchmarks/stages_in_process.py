"""A project in a temporary folder, whose stages run in the process of a benchmark, artifacts written and all."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.dag.stages import STAGES
from flows.params_file import write_params
from flows.runners.plain_runner import PlainRunner
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.records.layout import Layout

POLICIES = Path(__file__).parents[2] / "data/base_policies"
ONCE = ("version_stages", "prepare_world", "warm_start", "prepare_policy", "filter_tasks")
"""Stages that make what an iteration reads; preflight makes nothing of it."""
TRAINING = ("collected", "searched", "iteration")
"""The kinds of the stages of an iteration; an evaluation is none."""


class Project:
    """Stages of the project in `root`, with what they keep between them."""

    def __init__(self, root: Path, params: Params) -> None:
        self.layout, self._params, self._cache = Layout(root), params, ProcessCache()

    def run(self, stage: str, key: str = "") -> None:
        """Raises whatever its body raises."""
        PlainRunner(self.layout.root, self._cache).run(stage, key)

    def prepare(self) -> None:
        """Run all that an iteration needs before it."""
        for stage in ONCE:
            self.run(stage)

    def train(self, key: str) -> None:
        """Run the stages of the iteration `key`, in their order."""
        for stage in STAGES:
            if stage.each in TRAINING and key in stage.keys(self._params):
                self.run(stage.name, key)

    def close(self) -> None:
        """Close worlds, engines and models."""
        self._cache.close()


def link_policies(root: Path) -> None:
    """Give the project in `root` the shipped base policies."""
    (root / "data").mkdir(parents=True, exist_ok=True)
    if not (root / "data/base_policies").exists():
        (root / "data/base_policies").symlink_to(POLICIES)


@contextmanager
def temporary_project(params: Params) -> Iterator[Project]:
    """A project that has nothing but params.yaml and the shipped base policies, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        link_policies(root)
        write_params(root / "params.yaml", params.model_dump(mode="json"))
        project = Project(root, params)
        try:
            yield project
        finally:
            project.close()
