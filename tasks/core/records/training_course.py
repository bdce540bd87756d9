"""The course that the collapse monitor sets: its beginning, and its end where the run is to stop."""

from collections.abc import Iterable

from tasks.core.config.dag import iteration_key, iteration_number
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.layout import Layout
from tasks.core.records.monitoring import Course


class TrainingStopped(ValueError):  # noqa: N818 - says what happened to the run
    """The collapse monitor ended the training; what was trained until then is there."""


def write_neutral(layout: Layout, keys: Iterable[str] = (iteration_key(0),)) -> None:
    """Write courses after these iterations, by which nothing is done; by default the one that the first starts from."""
    for key in keys:
        write_document(layout.course(key), Course())


def require_going_on(layout: Layout, key: str) -> Course:
    """The course after iteration `key`. Raises TrainingStopped where it is to stop, ArtifactError without a course."""
    course = read_document(layout.course(key), Course)
    if course.stop is not None:
        raise TrainingStopped(
            f"training stopped after {key} (monitor.action: stop): {course.stop}. To score what was trained: "
            f"python -m flows.configure --refresh --set iterations={iteration_number(key)}; to go on: action none"
        )
    return course
