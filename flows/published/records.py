"""The files of a published run, docs/results/published/NAME: run.json, digests.json, and its dvc.lock."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import JsonValue

from tasks.core.records.content import ContentDigest
from tasks.core.records.documents import Document, read_document

PUBLISHED = Path("docs") / "results" / "published"
"""The folder of published runs, in the checkout."""

_PUBLISH, _RESTORE = "`loopline publish` writes it", "restore it from git"


class RunFacts(Document):
    """run.json: what a run was made with."""

    commit: str
    machine: dict[str, str]
    packages: dict[str, str]
    """Versions, by package."""
    knobs: dict[str, JsonValue]
    """Values, by dotted name."""
    code: dict[str, str]
    """Digest of the code that each stage ran."""


class StageDigests(Document):
    """The artifacts of one stage: by output of DVC, the digests of its files. What says only how, not what, is out."""

    name: str
    """As DVC's: "collect_rollouts@i003"."""
    artifacts: dict[str, dict[str, ContentDigest]]


class RunDigests(Document):
    """digests.json: the content of a run, stage by stage in the pipeline's order."""

    stages: tuple[StageDigests, ...]

    @property
    def artifacts(self) -> int:
        return sum(len(stage.artifacts) for stage in self.stages)


class PublishedRun:
    """A published run as it lies in its folder."""

    def __init__(self, folder: Path) -> None:
        """Read it. Raises ArtifactError for a file that is missing, half-written or not what it should be."""
        self.folder = folder
        self.facts = read_document(folder / "run.json", RunFacts, missing=_PUBLISH, damaged=_RESTORE)
        self.digests = read_document(folder / "digests.json", RunDigests, missing=_PUBLISH, damaged=_RESTORE)
        self.lock = folder / "dvc.lock"


def names(folder: Path) -> Iterable[str]:
    """Return the names of the runs that are published in `folder`."""
    return sorted(run.parent.name for run in folder.glob("*/run.json"))
