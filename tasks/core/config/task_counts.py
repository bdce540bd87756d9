"""Numbers of tasks in the splits of a generated world."""

from typing import Annotated

from pydantic import Field

TaskCount = Annotated[int, Field(gt=0, multiple_of=3)]
"""A generated split has whole scenarios of three tasks."""
