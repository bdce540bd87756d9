"""The kind of machine and the packages on which the bytes of a run may depend, told without importing them."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

PORTABLE = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "OPENBLAS_CORETYPE": "Haswell"}
"""Variables of torch, MKL and OpenBLAS that leave the processor no choice. A process reads them as it starts."""


def machine_kind() -> str:
    """Return what an engine's bits may depend on: the processor, the variables that choose its code, torch's version.

    "portable" in their place: this process computes the bits that x86-64 processors with AVX2 share.
    """
    processor, flags = _processor()
    chosen = {name: os.environ[name] for name in PORTABLE if name in os.environ}
    portable = chosen == PORTABLE and platform.machine() == "x86_64" and "avx2" in flags
    kind = ["portable"] if portable else [processor, *(f"{name}={value}" for name, value in chosen.items())]
    return ", ".join([*kind, f"torch {version('torch')}"])


def libraries() -> dict[str, str]:
    """Return the versions of the packages that loopline needs, those of its extras left out, and of Python."""
    needed = [line for line in requires("loopline") or () if "extra ==" not in line]
    found = {name: _version(name) for name in (re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in needed)}
    return {"python": platform.python_version()} | {name: each for name, each in found.items() if each is not None}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> tuple[str, list[str]]:
    """Return the processor's name and its abilities."""
    facts: dict[str, str] = {}
    cpu = Path("/proc/cpuinfo")
    for line in cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else ():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    kind = " ".join(facts.get(name, "?") for name in ("model name", "cpu family", "model"))
    return f"{platform.machine()}, {kind}", facts.get("flags", "").split()
