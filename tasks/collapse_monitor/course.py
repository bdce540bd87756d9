"""What the next iteration goes by, from the warnings of all iterations so far: pure.

All that is decided follows from monitor.json, so that a run comes to the same decisions again. Going back further than
to the policy before an update is not among them: an iteration's policy, and with it the policy that its rollouts were
sampled from, is a dependency that DVC has to know before anything runs.
"""

from tasks.collapse_monitor.rules import UPDATE_FIGURES, Rule, limit_of
from tasks.core.config.monitor import MonitorAction
from tasks.core.records.monitoring import Course, Monitor


def next_course(
    monitor: Monitor, rules: tuple[Rule, ...], action: MonitorAction, learning_rate_factor: float, variance_share: float
) -> Course:
    """The course after the last iteration of `monitor`."""
    warned = sorted({warning.iteration for warning in monitor.warnings})
    match action:
        case "discard_update":
            return Course(discard_above=_update_limits(monitor, rules))
        case "stop" if warned:
            first = monitor.warnings[0]
            return Course(stop=f"iteration {first.iteration}: {first.rule}: {first.evidence}")
        case "lower_learning_rate":
            return Course(learning_rate_factor=learning_rate_factor ** len(warned))
        case "tighten_filter" if warned:
            return Course(variance_share=variance_share)
        case _:
            return Course()


def _update_limits(monitor: Monitor, rules: tuple[Rule, ...]) -> dict[str, float]:
    """The smallest limit on each figure of an update."""
    limits: dict[str, float] = {}
    for rule in rules:
        limit = limit_of(rule, monitor.history)
        if rule.figure in UPDATE_FIGURES and rule.kind != "fall" and limit is not None:
            limits[rule.figure] = min(limit, limits.get(rule.figure, limit))
    return limits
