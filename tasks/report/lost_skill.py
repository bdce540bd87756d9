"""Skill that training lost again, by the dev scores: a fact, where the collapse monitor warns before one. Pure."""

from collections.abc import Mapping

from tasks.core.records.monitoring import CollapseWarning

FALL = 10.0
"""TGC so many points under the best before it is lost skill,"""
PATIENCE = 2
"""in so many evaluations in a row."""


def lost_skill(dev_tgc: Mapping[int, float]) -> list[CollapseWarning]:
    """The first of PATIENCE evaluations in a row that are FALL points (percent) or more under the best before them.

    `dev_tgc`: by the iteration that was evaluated, 0 the base policy. Empty where there is no such fall.
    """
    best, low = 0.0, list[int]()
    for iteration, value in sorted(dev_tgc.items()):
        low = [*low, iteration] if value <= best - FALL else []
        if len(low) == PATIENCE:
            evidence = f"TGC on dev fell {FALL:g} points or more under its best ({best:.1f}) and stayed there"
            return [CollapseWarning(rule="lost_skill", iteration=low[0], evidence=evidence)]
        best = max(best, value)
    return []
