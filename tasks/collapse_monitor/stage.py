"""monitor_collapse@i: metrics.json and the monitor.json of the iteration before -> monitor.json and course.json."""

import logging

from tasks.collapse_monitor.course import next_course
from tasks.collapse_monitor.rules import fitted_rules, new_warnings
from tasks.core.config.stage_inputs import MonitorInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import Metrics, read_document, write_document
from tasks.core.records.monitoring import Monitor, watched

_log = logging.getLogger(__name__)


def monitor_collapse(context: StageContext[MonitorInputs]) -> None:
    """Warn of signs of a collapse in iteration `context.key`, and set the course of the next one.

    Raises ArtifactError when an input is missing or damaged.
    """
    inputs, layout, key = context.inputs, context.layout, context.key
    before = read_document(layout.monitor(inputs.previous[key].policy), Monitor)
    history = (*before.history, watched(read_document(layout.metrics(key), Metrics)))
    found = new_warnings(history, fitted_rules())
    for warning in found:
        _log.warning("%s: sign of a collapse: %s: %s", key, warning.rule, warning.evidence)
    monitor = Monitor(history=history, warnings=(*before.warnings, *found))
    course = next_course(monitor, fitted_rules(), inputs.action, inputs.learning_rate_factor, inputs.variance_share)
    write_document(layout.monitor(key), monitor)
    write_document(layout.course(key), course)
