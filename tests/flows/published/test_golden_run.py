"""A whole run in little has the recorded bits, from the tasks to the scores."""

import hashlib
from pathlib import Path

import pytest

from flows.published.finished_run import run_digests
from tests.golden_bits import require_recorded_bits

pytestmark = pytest.mark.whole_runs

OF_PAGES = ("report", "record_lineage")
"""Stages that show the run, and change none of its figures."""


def test_a_whole_run_has_the_recorded_bits(finished_project: Path) -> None:
    stages = [stage for stage in run_digests(finished_project).stages if stage.name not in OF_PAGES]
    content = "".join(stage.model_dump_json() for stage in stages)
    require_recorded_bits(Path(__file__).parent / "golden_run.json", hashlib.sha256(content.encode()).hexdigest())
