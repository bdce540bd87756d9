"""tests/benchmarks/gpu_check.sh in miniature, on the CPU: every part runs, and missing packages are reported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "benchmarks/gpu_check.sh"
PARTS = ("gradients", "kernels", "mfu", "engine", "training", "vllm")


@pytest.mark.faults  # a minute of CPU, mostly for starting processes
def test_every_part_of_the_gpu_check_runs_in_little_on_a_cpu(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable, "LOOPLINE_RESULTS": str(tmp_path)}
    done = subprocess.run([SCRIPT, "--cpu"], env=environment, capture_output=True, text=True)
    names = {f"gpu_{part}_in_little.json" for part in PARTS}
    assert {file.name for file in tmp_path.iterdir()} == names, done.stdout + done.stderr
    found = {part: json.loads((tmp_path / f"gpu_{part}_in_little.json").read_text()) for part in PARTS}
    assert {part["device"] for part in found.values()} == {"CPU, in little"}
    assert found["gradients"]["float32"]["difference"] < 1e-5
    assert found["gradients"]["bfloat16"]["first_step_clipped"] == 0
    assert found["kernels"]["head"]["chunked"]["max_error"] < 1e-4 < found["kernels"]["head"]["eager"]["max_error"]
    assert all(row["tokens_per_s"] > 0 for row in found["mfu"]["rows"] + [*found["engine"]["conversations"].values()])
    assert len(found["training"]["curves"][0]) == 1
    assert "skipped" in found["vllm"]


def test_a_part_that_fails_leaves_a_file_and_the_others_alone(tmp_path: Path) -> None:
    """With an interpreter that cannot import torch, each part fails but the script does not."""
    environment = {**os.environ, "LOOPLINE_RESULTS": str(tmp_path)}
    stub = tmp_path / "python"
    stub.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    stub.chmod(0o755)
    environment["PYTHON"] = str(stub)
    done = subprocess.run([SCRIPT, "--cpu"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    for part in PARTS:
        failed = json.loads((tmp_path / f"gpu_{part}_failed.json").read_text())
        assert failed["exit_code"] == 1 and "ModuleNotFoundError" in failed["failed"]
