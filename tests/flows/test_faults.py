"""Kill -9 in each task in turn: a real, tiny pipeline arrives at the same bytes (tests/benchmarks/fault_drill.py)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flows.dag.stages import STAGES

DRILL = Path(__file__).resolve().parents[1] / "benchmarks" / "fault_drill.py"


@pytest.mark.faults
def test_a_kill_in_every_task_changes_nothing() -> None:
    path = os.pathsep.join([str(DRILL.parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(DRILL), "stages"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    killed = [stage.name for stage in STAGES if stage.each != "searched"]
    assert found.pop("killed") == dict.fromkeys(killed, -signal.SIGKILL)
    assert found == {"next_run": 0, "same_bytes": True, "whole": True, "left_over": [], "said": []}
