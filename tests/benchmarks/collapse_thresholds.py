"""Limits of the collapse monitor's rules, fitted on recorded runs and counted on others.

python tests/benchmarks/collapse_thresholds.py [--fit]

Reads what `collapse_runs.py` recorded. Seeds below COUNTED_FROM are to fit on: with `--fit`, the limit of every rule is
put outside of what the healthy ones among them did, by the smallest of MARGINS with which none of them, left out of
the fit, would have been warned of; written to tasks/core/collapse/thresholds.json. No limit is put closer than
JUDGED: recorded runs are few, small, and not of every world. The other seeds are only counted: collapses that were
warned of before the mean return fell, and warnings in healthy runs.
"""

import argparse
import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collapse_runs import commit
from recorded_runs import COUNTED_FROM, RECORDED, Run, read_runs
from result_file import write_result
from scipy.stats import binomtest

from tasks.core.collapse import rules as rules_module
from tasks.core.collapse.rules import History, Rule, Thresholds, collapse_rules, limit_of, warnings_of

MARGINS = (1.1, 1.25, 1.5, 2.0, 3.0)
FALLEN = 0.5
"""Share of the best mean return before: a run has collapsed from where it stays under this to its end."""
JUDGED = {
    "return_std_fall": 0.5,
    "entropy_fall": 0.15,
    "entropy_rise": 3.0,
    "gradient_spike": 5.0,
    "large_update": 0.1,
    "length_fall": 0.5,
    "length_rise": 2.0,
    "repetition": 0.7,
    "distinct_fall": 0.3,
    "engine_mismatch": 0.01,
}
"""Limits by judgement, before anything was recorded."""
UNFITTED = ("engine_mismatch",)
"""Rules that are not about training."""


def fitted(rule: Rule, healthy: Sequence[Run]) -> Rule:
    """The rule with its limit beyond what any healthy run did, and no closer than judged."""
    for margin in MARGINS:
        left_out = [(run, beyond(rule, [r for r in healthy if r is not run], margin)) for run in healthy]
        if not any(warnings_of(run.history, [found]) for run, found in left_out if found is not None):
            break
    looser, judged = min if rule.kind == "fall" else max, JUDGED[rule.name]
    found = beyond(rule, healthy, margin)
    return rule.model_copy(update={"factor": judged if found is None else looser(found.factor, judged)})


def beyond(rule: Rule, healthy: Sequence[Run], margin: float) -> Rule | None:
    """The rule with its limit a factor of `margin` from the furthest value; None where there is no limit above 0."""
    reached = [ratio for run in healthy for ratio in ratios(rule, run.history)]
    if not reached or rule.name in UNFITTED:
        return None
    factor = min(reached) / margin if rule.kind == "fall" else max(reached) * margin
    return rule.model_copy(update={"factor": float(f"{factor:.2g}")}) if factor > 0 else None


def ratios(rule: Rule, history: History) -> list[float]:
    """Ratios of iterations: the value over what its limit would be with a factor of 1, where it may break the rule."""
    unit = rule.model_copy(update={"factor": 1.0})
    found = []
    for place, now in enumerate(history):
        value, level = getattr(now, rule.figure), limit_of(unit, history[:place])
        if value is not None and level and not (rule.solved_at is not None and now.mean_return >= rule.solved_at):
            found.append(value / level)
    return found


def fall_of(history: History) -> int | None:
    """The iteration from which the mean return is low to the end; None in a run that did not collapse."""
    best, fallen = 0.0, None
    for iteration, now in enumerate(history, 1):
        is_low = now.mean_return <= FALLEN * best
        fallen = (fallen or iteration) if is_low else None
        best = max(best, now.mean_return)
    return fallen


def share(hits: Sequence[bool]) -> dict[str, Any]:
    """A count with its 95% interval (Clopper and Pearson)."""
    if not hits:
        return {"count": 0, "of": 0}
    interval = binomtest(sum(hits), len(hits)).proportion_ci()
    return {"count": sum(hits), "of": len(hits), "interval": [round(interval.low, 2), round(interval.high, 2)]}


def counted(runs: Sequence[Run], rules: Sequence[Rule]) -> dict[str, Any]:
    found = [(run, fall_of(run.history), warnings_of(run.history, rules)) for run in runs]
    fallen = [(fall, warned) for run, fall, warned in found if run.kind == "provoked" and fall]
    healthy = [(fall, warned) for run, fall, warned in found if run.kind == "healthy"]
    return {
        "provoked": sum(run.kind == "provoked" for run in runs),
        "warned_before_the_fall": share([bool(warned) and warned[0].iteration < fall for fall, warned in fallen]),
        "false_alarms": share([bool(warned) for _, warned in healthy]),
        "healthy_that_fell": sum(fall is not None for fall, _ in healthy),
        "runs": {
            f"{run.kind} {run.seed}": {"falls": fall, "warnings": [f"{w.iteration} {w.rule}" for w in warned]}
            for run, fall, warned in found
        },
    }


def fit(runs: Sequence[Run]) -> Thresholds:
    """thresholds.json anew, from the healthy runs of seeds that are not counted."""
    healthy = [run for run in runs if run.kind == "healthy" and run.seed < COUNTED_FROM]
    rules = tuple(fitted(rule, healthy) for rule in collapse_rules())
    profiles = Counter(run.profile for run in healthy)
    return Thresholds(
        fitted_on=", ".join(f"{count} of {profile}" for profile, count in profiles.items()),
        command="python tests/benchmarks/collapse_thresholds.py --fit",
        commit=commit(),
        recorded_runs=hashlib.sha256(RECORDED.read_bytes()).hexdigest(),
        judged=tuple(rule.name for rule in rules if rule.factor == JUDGED[rule.name]),
        rules=rules,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    runs, rules = read_runs(), collapse_rules()
    if arguments.fit:
        thresholds = fit(runs)
        path = Path(rules_module.__file__).with_name("thresholds.json")
        path.write_text(thresholds.model_dump_json(indent=1, exclude_defaults=True) + "\n", encoding="utf-8")
        rules = thresholds.rules
    profiles = sorted({run.profile for run in runs})
    parts = {"fitted_on": lambda seed: seed < COUNTED_FROM, "counted_on": lambda seed: seed >= COUNTED_FROM}
    write_result(
        "collapse_thresholds",
        {
            part: {
                profile: counted([r for r in runs if r.profile == profile and belongs(r.seed)], rules)
                for profile in profiles
            }
            for part, belongs in parts.items()
        },
    )


if __name__ == "__main__":
    main()
