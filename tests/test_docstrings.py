"""Docstrings begin with a noun or a verb, as docs/contributing.md asks."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_no_docstring_is_a_fragment() -> None:
    files = sorted(file for room in ("flows", "tasks") for file in (ROOT / room).rglob("*.py"))
    assert len(files) > 300
    fragments = re.compile(r'^ *"""(?:What|Of) .*', re.MULTILINE)
    assert {str(file): found for file in files if (found := fragments.findall(file.read_text(encoding="utf-8")))} == {}
