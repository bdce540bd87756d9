"""monitor_collapse@i: metrics.json of all iterations so far -> the course of those after it."""

from tasks.core.collapse.rules import collapse_rules
from tasks.core.collapse.watching import read_history
from tasks.core.config.stage_inputs import MonitorInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import write_document
from tasks.monitor_collapse.course import next_course


def monitor_collapse(context: StageContext[MonitorInputs]) -> None:
    """Set the course of what follows iteration `context.key`. Its warnings are told by who runs the update.

    Raises ArtifactError when an input is missing or damaged.
    """
    inputs, layout, key = context.inputs, context.layout, context.key
    course = next_course(
        read_history(layout, key), collapse_rules(), inputs.action, inputs.learning_rate_factor, inputs.variance_share
    )
    write_document(layout.course(key), course)
