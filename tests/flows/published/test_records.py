"""The runs that this repository publishes can be read, and each is of one piece."""

from pathlib import Path

import pytest

from flows.published.records import PUBLISHED, PublishedRun, names
from tasks.core.lineage.dvc_lock import whole_lock
from tasks.core.records.document_kinds import holds_clocks

ROOT = Path(__file__).resolve().parents[3]


def test_the_smoke_run_is_published() -> None:
    assert "smoke" in names(ROOT / PUBLISHED)


@pytest.mark.parametrize("name", names(ROOT / PUBLISHED))
def test_digests_are_of_the_artifacts_of_the_lock(name: str) -> None:
    run = PublishedRun(ROOT / PUBLISHED / name)
    locked = {stage.name: set(stage.outs) for stage in whole_lock(run.lock).stages}
    digested = {stage.name: set(stage.artifacts) for stage in run.digests.stages}
    assert all(outs <= locked[stage] for stage, outs in digested.items())
    assert any(holds_clocks(out) for outs in digested.values() for out in outs)
    assert run.facts.commit and run.facts.knobs["seed"] == 0
