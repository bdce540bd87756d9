"""Digests of what was computed, recorded by kind of machine: the same kind has the same bits, another one reports.

To add this kind of machine, put the line that a test warns of into the test's JSON file. Where a change of the code is
meant to change bits, record every kind anew that is at hand, and drop the others.
"""

import json
import warnings
from pathlib import Path

from flows.published.machine import machine_kind


def require_recorded_bits(file: Path, digest: str) -> None:
    """Fail if this kind of machine has another digest in `file`; warn with the digest if it has none."""
    recorded = json.loads(file.read_text(encoding="utf-8"))
    kind = machine_kind()
    if kind in recorded:
        assert digest == recorded[kind], f"{file.name}: other bits than recorded for {kind}"
        return
    same = sorted(name for name, other in recorded.items() if other == digest)
    warnings.warn(f"{file}: a new kind of machine: {kind!r}: {digest!r}; the bits of {same or 'none'}", stacklevel=2)
