"""The course that the collapse monitor sets: its beginning, and its end where the run is to stop."""

from tasks.core.config.params import iteration_key, iteration_number
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.layout import Layout
from tasks.core.records.monitoring import Course, Monitor


class TrainingStopped(ValueError):  # noqa: N818 - says what happened to the run
    """The collapse monitor ended the training; what was trained until then is there."""


def begin_course(layout: Layout) -> None:
    """Write what the first iteration starts from: nothing seen, and nothing to be done about it."""
    write_document(layout.monitor(iteration_key(0)), Monitor())
    write_document(layout.course(iteration_key(0)), Course())


def require_going_on(layout: Layout, key: str) -> Course:
    """The course after iteration `key`. Raises TrainingStopped where it is to stop, ArtifactError without a course."""
    course = read_document(layout.course(key), Course)
    if course.stop is not None:
        raise TrainingStopped(
            f"training stopped after {key} (monitor.action: stop): {course.stop}. To score what was trained: "
            f"python -m flows.configure --refresh --set iterations={iteration_number(key)}; to go on: action none"
        )
    return course
