"""The order for an update, for whoever runs it: this process, ranks, or another machine. Imports no torch."""

from pathlib import Path

from tasks.core.config.dag import Predecessors
from tasks.core.config.section import Section
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.records.layout import Layout
from tasks.core.records.training import Passes


class UpdateJob(Section):
    """One update: the project's folder, the iteration, and the parameters."""

    root: Path
    key: str
    inputs: UpdateInputs
    passes: Passes | None = None
    """The way of the forward passes that preflight has proven; None: the way that the model's layers suggest."""
    proves_passes: bool = False
    """Whether to prove before the update that the passes are exact, and find the fastest exact way from `passes` on."""

    @property
    def previous(self) -> Predecessors:
        """The iterations whose policy is trained, and whose policy sampled the rollouts."""
        return self.inputs.previous[self.key]

    @property
    def layout(self) -> Layout:
        return Layout(self.root)


def read_files(job: UpdateJob) -> list[Path]:
    """Return the files that `train` and the record of its metrics read: all that ranks on another machine need."""
    layout, previous = job.layout, job.previous
    folders = (layout.base_policy, layout.policy(previous.policy))
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    return [*files, layout.training_batch(previous.batch), layout.advantage_summary(previous.batch)]
