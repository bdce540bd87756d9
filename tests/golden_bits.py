"""Digests of what was computed, recorded by kind of machine: the same kind has the same bits, another one reports.

To add this kind of machine, put the line that a test warns of into the test's JSON file. Where a change of the code is
meant to change bits, record every kind anew that is at hand, and drop the others.
"""

import json
import os
import platform
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from tasks.core.lineage.machine import PORTABLE, machine_kind

ROOT = Path(__file__).resolve().parents[1]


def require_portable_bits(test: str) -> None:
    """Fail if the test `path::name` has other bits than recorded when its process begins with PORTABLE's variables.

    They were recorded on an Intel Xeon with AVX-512 and found again on an AMD EPYC.
    """
    if platform.machine() != "x86_64" or torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("portable bits need an x86-64 processor with AVX2")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", test]
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **PORTABLE}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def require_recorded_bits(file: Path, digest: str) -> None:
    """Fail if this kind of machine has another digest in `file`; warn with the digest if it has none."""
    recorded = json.loads(file.read_text(encoding="utf-8"))
    kind = machine_kind()
    if kind in recorded:
        assert digest == recorded[kind], f"{file.name}: other bits than recorded for {kind}: {digest}"
        return
    same = sorted(name for name, other in recorded.items() if other == digest)
    warnings.warn(f"{file}: a new kind of machine: {kind!r}: {digest!r}; the bits of {same or 'none'}", stacklevel=2)
