"""Whether methods keep what they reached: dev TGC of each run's best and last evaluation and of its thirds. Pure."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from tasks.core.records.study import Study, StudyRun
from tasks.core.study.comparing import interval_over_seeds
from tasks.core.study.tables import NONE, Row, level, mean_text, runs_by_method


def drift_rows(study: Study) -> list[Row]:
    """Return the rows: method, seeds, best, last, fall from best to last, fall minus that of `study.against`, drift.

    The best of several evaluations is partly due to chance, the more so the more there are: compare falls only between
    methods that were evaluated equally often. The drift is the mean of the last third of a run's evaluations minus that
    of the middle third (neither includes the base); no such choice affects it.
    """
    methods = {method: _evaluated(runs) for method, runs in runs_by_method(study).items()}
    reference = _falls(methods.get(study.against, {}))
    rows: list[Row] = []
    for method, seeds in methods.items():
        falls = _falls(seeds)
        more = [] if method == study.against else [falls[seed] - reference[seed] for seed in falls if seed in reference]
        best, last = fmean(map(max, seeds.values())), fmean(dev[-1] for dev in seeds.values())
        drifts = [_drift(dev[1:]) for dev in seeds.values() if len(dev) > 3]
        fall = _mean(list(falls.values()), study.confidence)
        signed = (_mean(values, study.confidence, "+") for values in (more, drifts))
        rows.append((method, str(len(seeds)), f"{best:.1f}", f"{last:.1f}", fall, *signed))
    return rows


def drift_title(study: Study) -> str:
    """Return the title of `drift_rows`."""
    return f"Drift: dev TGC at the best and at the last evaluation, {level(study)} intervals over seeds"


def drift_heads(study: Study) -> list[str]:
    """Return the columns of `drift_rows` after the method."""
    return ["seeds", "best", "last", "fall", f"minus {study.against}'s fall", "last third minus middle"]


def _evaluated(runs: Sequence[StudyRun]) -> dict[int, list[float]]:
    """Return dev TGC by seed, in the order of the evaluations."""
    return {run.seed: [point.dev_tgc for point in run.curve if point.dev_tgc is not None] for run in runs}


def _falls(seeds: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {seed: max(dev) - dev[-1] for seed, dev in seeds.items()}


def _drift(dev: Sequence[float]) -> float:
    third = len(dev) // 3
    return fmean(dev[-third:]) - fmean(dev[-2 * third : -third])


def _mean(values: Sequence[float], confidence: float, sign: str = "") -> str:
    if not values:
        return NONE
    interval = interval_over_seeds(values, confidence)
    if interval is None:
        return f"{values[0]:{sign}.1f}"
    return mean_text(fmean(values), stdev(values), *interval, sign)
