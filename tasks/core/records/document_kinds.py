"""The kind of document that lies at each path, for those who read artifacts without knowing which stage wrote them."""

from pathlib import Path, PurePosixPath

from pydantic import BaseModel

from tasks.core.records.delivery_probe import DeliveryProbe
from tasks.core.records.layout import Layout
from tasks.core.records.marks import has_clock
from tasks.core.records.run_manifest import Attestation, LineageRecord, RunManifest, StageVersions
from tasks.core.records.scores import Evaluation, Scores, Selection
from tasks.core.records.training import AdvantageSummary, Metrics, Preflight, Timings, WarmStartRecord

_ANY = "*"
_HERE = Layout(Path())
DOCUMENTS: dict[Path, type[BaseModel]] = {
    _HERE.stage_versions: StageVersions,
    _HERE.manifest: RunManifest,
    _HERE.attestation(_ANY, _ANY): Attestation,
    _HERE.warm_start_record: WarmStartRecord,
    _HERE.preflight: Preflight,
    _HERE.timings(_ANY): Timings,
    _HERE.advantage_summary(_ANY): AdvantageSummary,
    _HERE.metrics(_ANY): Metrics,
    _HERE.policy(_ANY) / "delivery_probe.json": DeliveryProbe,
    _HERE.evaluation(_ANY): Evaluation,
    _HERE.selection: Selection,
    _HERE.score(_ANY): Scores,
    _HERE.lineage: LineageRecord,
}
"""By path relative to the project's root, where * stands for an iteration, a split, a stage."""


def document_kind(path: str) -> type[BaseModel] | None:
    """Return the kind of document at `path`, relative to the project's root; None for every other artifact."""
    place = PurePosixPath(path)
    for pattern, kind in DOCUMENTS.items():
        if len(place.parts) == len(pattern.parts) and place.match(pattern.as_posix()):
            return kind
    return None


def holds_clocks(path: str) -> bool:
    """Return whether the artifact at `path` differs between equal runs, because a field of it is a clock."""
    kind = document_kind(path)
    return kind is not None and has_clock(kind)
