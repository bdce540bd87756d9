"""Each stage states what it wrote and with what; `loopline lineage` compares that with dvc.lock."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.dag.stages import Stage
from tasks.core.config.params import read_yaml
from tasks.core.lineage.integrity import dvc_md5
from tasks.core.lineage.machine import machine_kind
from tasks.core.records.documents import write_document
from tasks.core.records.layout import Layout, holds_clocks
from tasks.core.records.run_manifest import Attestation, StageVersion


def write_attestation(stage: Stage, key: str, version: StageVersion, layout: Layout) -> None:
    """Write what `stage` states about its outputs as they lie there, for those that dvc.yaml names."""
    own = layout.attestation(stage.name, key)
    outs = {
        path: dvc_md5(layout.root / path)
        for path in _outs(layout.root / "dvc.yaml", stage.name, key)
        if not holds_clocks(path) and layout.root / path != own and (layout.root / path).exists()
    }
    said = Attestation(stage=stage.name, key=key, version=version, outs=outs, machine=machine_kind())
    write_document(own, said)


def _outs(dvc_yaml: Path, stage: str, key: str) -> Iterator[str]:
    """Yield the paths of the outputs of a stage, whose templates use the key."""
    definitions: dict[str, Any] = read_yaml(dvc_yaml)["stages"] if dvc_yaml.exists() else {}  # no project of DVC's
    found = definitions.get(stage, {})
    definition = found.get("do", found)
    for out in (*definition.get("outs", ()), *definition.get("metrics", ())):
        path = next(iter(out)) if isinstance(out, dict) else out
        yield path.replace("${key}", key).replace("${item}", key)
