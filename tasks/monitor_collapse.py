"""Stage monitor_collapse@i: metrics.json of all iterations so far -> the course of the iterations after it."""

from tasks.core.collapse.rules import UPDATE_FIGURES, History, Rule, collapse_rules, limit_of, read_history, warnings_of
from tasks.core.config.monitor import LOWERED, TIGHTENED, MonitorAction
from tasks.core.config.stage_inputs import MonitorInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import write_document
from tasks.core.records.monitoring import Course


def next_course(history: History, rules: tuple[Rule, ...], action: MonitorAction) -> Course:
    """Return the course after the last iteration of `history`."""
    warnings = warnings_of(history, rules)
    match action:
        case "discard_update":
            return Course(discard_above=_update_limits(history, rules))
        case "stop" if warnings:
            first = warnings[0]
            return Course(stop=f"iteration {first.iteration}: {first.rule}: {first.evidence}")
        case "lower_learning_rate":
            return Course(learning_rate_factor=LOWERED ** len({warning.iteration for warning in warnings}))
        case "tighten_filter" if warnings:
            return Course(variance_share=TIGHTENED)
        case _:
            return Course()


def _update_limits(history: History, rules: tuple[Rule, ...]) -> dict[str, float]:
    """Return the smallest limit on each figure of an update."""
    limits: dict[str, float] = {}
    for rule in rules:
        limit = limit_of(rule, history)
        if rule.figure in UPDATE_FIGURES and rule.kind != "fall" and limit is not None:
            limits[rule.figure] = min(limit, limits.get(rule.figure, limit))
    return limits


def monitor_collapse(context: StageContext[MonitorInputs]) -> None:
    """Set the course of the iterations after `context.key`. The runner of the update reports its warnings.

    Raises ArtifactError when an input is missing or damaged.
    """
    inputs, layout, key = context.inputs, context.layout, context.key
    course = next_course(read_history(layout, key), collapse_rules(), inputs.action)
    write_document(layout.course(key), course)
