"""Numbers of tasks in the splits of a generated world."""

from typing import Annotated

from pydantic import Field

from tasks.core.config.section import Section

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
