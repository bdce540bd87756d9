"""The course that the collapse monitor sets: writing the first one, and ending the run if it says stop."""

from collections.abc import Iterable

from tasks.core.config.dag import iteration_key, iteration_number
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.layout import Layout
from tasks.core.records.monitoring import Course


class TrainingStopped(ValueError):  # noqa: N818 - says what happened to the run
    """The collapse monitor stopped the training; everything trained until then is kept."""


def write_neutral(layout: Layout, keys: Iterable[str] = (iteration_key(0),)) -> None:
    """Write neutral (no-op) courses for these iterations; by default that with which the first iteration starts."""
    for key in keys:
        write_document(layout.course(key), Course())


def require_going_on(layout: Layout, key: str) -> Course:
    """Return the course after iteration `key`.

    Raises TrainingStopped if it says stop, ArtifactError if it is missing.
    """
    course = read_document(layout.course(key), Course)
    if course.stop is not None:
        raise TrainingStopped(
            f"training stopped after {key} (monitor.action: stop): {course.stop}. To score what was trained: python -m "
            f"flows.configure --refresh --set iterations={iteration_number(key)}; to continue, set monitor.action to "
            "none"
        )
    return course
