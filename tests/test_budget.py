"""The weight of the project: lines of Python, and files too small to be one. A change may lower them."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = [file for folder in ("flows", "tasks") for file in (ROOT / folder).rglob("*.py")]
WITHOUT_WORLDS = [file for file in PRODUCT if not file.is_relative_to(ROOT / "tasks/core/worlds")]
TESTS = list((ROOT / "tests").rglob("*.py"))
SMALL = 40
"""Lines below which a file is small."""


def lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(("files", "most"), [(PRODUCT, 54_800), (WITHOUT_WORLDS, 39_850), (TESTS, 42_900)])
def test_lines_of_python_stay_within_their_budget(files: list[Path], most: int) -> None:
    assert sum(map(lines, files)) <= most


def test_few_files_are_small() -> None:
    assert sum(0 < lines(file) < SMALL for file in PRODUCT) <= 65
