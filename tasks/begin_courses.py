"""Stage begin_courses: write neutral (no-op) courses -> data/courses/."""

from tasks.core.config.dag import iteration_key
from tasks.core.config.stage_inputs import CourseInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.monitoring import write_neutral


def begin_courses(context: StageContext[CourseInputs]) -> None:
    """Write the course of the first iteration, and of all others where the collapse monitor takes no action."""
    last = context.inputs.iterations if context.inputs.action == "none" else 0
    write_neutral(context.layout, [iteration_key(i) for i in range(last + 1)])
