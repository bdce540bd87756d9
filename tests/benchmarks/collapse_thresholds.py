"""Limits of the collapse monitor's rules, fitted on recorded runs and counted on others.

python tests/benchmarks/collapse_thresholds.py [--fit]

Reads what `collapse_runs.py` recorded. Seeds below COUNTED_FROM are to fit on: with `--fit`, every limit is put MARGIN
outside of what the healthy ones among them did, in tasks/collapse_monitor/thresholds.json. The other seeds are only
counted: collapses that were warned of before the mean return fell, and warnings in healthy runs.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collapse_runs import COUNTED_FROM, Run, read_runs
from result_file import write_result
from scipy.stats import binomtest

from tasks.collapse_monitor import rules as rules_module
from tasks.collapse_monitor.rules import Rule, Rules, fitted_rules, limit_of, new_warnings
from tasks.core.records.monitoring import WatchedFigures

MARGIN = 1.25
FALLEN = 0.5
"""Of the best mean return before: a run has collapsed from where it stays under this to its end."""
UNFITTED = ("engine_mismatch",)
"""Rules that are not about training."""


def fitted(rule: Rule, healthy: Sequence[Run]) -> Rule:
    """The rule with its limit MARGIN beyond what any healthy run did."""
    unit = rule.model_copy(update={"factor": 1.0})
    reached = []
    for run in healthy:
        for place, now in enumerate(run.history):
            value, level = getattr(now, rule.figure), limit_of(unit, run.history[:place])
            solved = rule.solved_at is not None and now.mean_return >= rule.solved_at
            if value is not None and level is not None and not solved:
                reached.append(value / level)
    if not reached or rule.name in UNFITTED:
        return rule
    factor = min(reached) / MARGIN if rule.kind == "fall" else max(reached) * MARGIN
    return rule.model_copy(update={"factor": float(f"{max(factor, 1e-6):.2g}")})


def fall_of(history: Sequence[WatchedFigures]) -> int | None:
    """The iteration from which the mean return is low to the end; None in a run that did not collapse."""
    best, fallen = 0.0, None
    for iteration, now in enumerate(history, 1):
        is_low = now.mean_return <= FALLEN * best
        fallen = (fallen or iteration) if is_low else None
        best = max(best, now.mean_return)
    return fallen


def first_warning(history: Sequence[WatchedFigures], rules: Sequence[Rule]) -> tuple[int, str] | None:
    found = [w for count in range(1, len(history) + 1) for w in new_warnings(history[:count], rules)]
    return (found[0].iteration, found[0].rule) if found else None


def share(hits: Sequence[bool]) -> dict[str, Any]:
    """A count with its 95% interval (Clopper and Pearson)."""
    if not hits:
        return {"count": 0, "of": 0}
    interval = binomtest(sum(hits), len(hits)).proportion_ci()
    return {"count": sum(hits), "of": len(hits), "interval": [round(interval.low, 2), round(interval.high, 2)]}


def counted(runs: Sequence[Run], rules: Sequence[Rule]) -> dict[str, Any]:
    collapsed = [run for run in runs if run.kind == "provoked" and fall_of(run.history)]
    healthy = [run for run in runs if run.kind == "healthy"]
    warned = {id(run): first_warning(run.history, rules) for run in runs}
    early = [(found := warned[id(run)]) is not None and found[0] < (fall_of(run.history) or 0) for run in collapsed]
    lines = [
        {"run": f"{run.world} {run.kind} {run.seed}", "falls": fall_of(run.history), "warning": warned[id(run)]}
        for run in runs
    ]
    return {
        "provoked": sum(run.kind == "provoked" for run in runs),
        "warned_before_the_fall": share(early),
        "false_alarms": share([warned[id(run)] is not None for run in healthy]),
        "runs": lines,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    runs = read_runs()
    rules = fitted_rules()
    if arguments.fit:
        rules = tuple(
            fitted(rule, [r for r in runs if r.kind == "healthy" and r.seed < COUNTED_FROM]) for rule in rules
        )
        path = Path(rules_module.__file__).with_name("thresholds.json")
        path.write_text(Rules(rules).model_dump_json(indent=1, exclude_defaults=True) + "\n", encoding="utf-8")
    worlds = sorted({run.world for run in runs})
    parts = {"fitted_on": lambda seed: seed < COUNTED_FROM, "counted_on": lambda seed: seed >= COUNTED_FROM}
    write_result(
        "collapse_thresholds",
        {
            part: {world: counted([r for r in runs if r.world == world and belongs(r.seed)], rules) for world in worlds}
            for part, belongs in parts.items()
        },
    )


if __name__ == "__main__":
    main()
