"""The facts of this machine and its packages on which the bytes of a run may depend."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import torch

PORTABLE = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE"}
"""Variables of torch and of MKL that leave the processor no choice of code. A process reads them as it starts."""


def machine_kind() -> str:
    """Return what an engine's bits may depend on: the processor, torch's vector code and its version."""
    if is_portable():
        return f"portable, torch {torch.__version__}"
    return f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def is_portable() -> bool:
    """Return whether this process computes the bits that x86-64 processors with AVX2 share."""
    chosen = all(os.environ.get(name) == value for name, value in PORTABLE.items())
    return chosen and platform.machine() == "x86_64" and torch.backends.cpu.get_cpu_capability() == "AVX2"


def machine_facts() -> dict[str, str]:
    """Return the machine in words."""
    return {
        "processor": _processor(),
        "bits": "portable" if is_portable() else "of this processor",
        "vector code": torch.backends.cpu.get_cpu_capability(),
        "system": f"{platform.system()} with {' '.join(platform.libc_ver()).strip() or 'its own libc'}",
        "python": platform.python_version(),
    }


def packages() -> dict[str, str]:
    """Return the versions of the packages that loopline needs, those of its extras left out."""
    needed = [line for line in requires("loopline") or () if "extra ==" not in line]
    found = {name: _version(name) for name in (re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in needed)}
    return {name: each for name, each in found.items() if each is not None}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    facts: dict[str, str] = {}
    cpu = Path("/proc/cpuinfo")
    for line in cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else ():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    kind = " ".join(facts.get(name, "?") for name in ("model name", "cpu family", "model"))
    return f"{platform.machine()}, {kind}"
