"""begin_courses: courses by which nothing is done about a collapse -> data/courses/."""

from tasks.core.config.dag import iteration_key
from tasks.core.config.stage_inputs import CourseInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.training_course import write_neutral


def begin_courses(context: StageContext[CourseInputs]) -> None:
    """Write what the first iteration goes by, and what all others do where the collapse monitor is to do nothing."""
    last = context.inputs.iterations if context.inputs.action == "none" else 0
    write_neutral(context.layout, [iteration_key(i) for i in range(last + 1)])
