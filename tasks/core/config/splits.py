"""The splits of a world's tasks, and their sizes in a generated world."""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field

from tasks.core.config.section import Section

Split = Literal["train", "dev", "test_normal", "test_challenge"]
SPLITS: tuple[Split, ...] = get_args(Split)
TEST_SPLITS: tuple[Split, ...] = ("test_normal", "test_challenge")
"""Played by scoring only, when everything is chosen."""
MEASURED_SPLITS: tuple[Split, ...] = ("dev", *TEST_SPLITS)
"""Those on which policies are compared."""


TaskCount = Annotated[int, Field(gt=0, multiple_of=3)]
"""A generated split has whole scenarios of three tasks."""


class TaskCounts(Section):
    """Tasks per split. Each world has defaults of its own."""

    train: TaskCount
    """Tasks of the split train."""
    dev: TaskCount
    """Tasks of dev."""
    test_normal: TaskCount
    """Tasks of Test-N."""
    test_challenge: TaskCount
    """Tasks of Test-C."""

    @property
    def by_split(self) -> Mapping[Split, int]:
        """The numbers by split."""
        return {split: getattr(self, split) for split in SPLITS}
