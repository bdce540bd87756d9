"""Run-to-run spread: the scores of versions whose parameters differ only in the seed. Pure.

A standard error says how certain one policy's score is. Only several training runs with the same settings say how far
another run would land.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from tasks.core.config.splits import MEASURED_SPLITS, Split
from tasks.core.evaluation.tgc_sgc import sgc, tgc
from tasks.core.records.schemas import SELECTED_POLICY
from tasks.core.registry.version_evaluation import VersionEvaluation

SEED = "seed"
WITHOUT_EFFECT = ("profiles", "lineage.", "machines.")
"""Name prefixes of parameters that do not affect the policy."""
METRICS = {"TGC": tgc, "SGC": sgc}


@dataclass(frozen=True)
class Spread:
    """Mean and spread of one figure over the training seeds, in percent."""

    mean: float
    deviation: float
    """Sample standard deviation over the runs."""


@dataclass(frozen=True)
class SeedSpread:
    """The scores of runs that differ only in their seed."""

    versions: tuple[int, ...]
    seeds: tuple[str, ...]
    scores: Mapping[tuple[Split, str], Spread]
    """Scores of the selected policies, by split and metric."""


def seed_spreads(versions: Iterable[tuple[int, VersionEvaluation]]) -> list[SeedSpread]:
    """Group versions of at least two seeds, in the order of their first version. The last run of each seed counts."""
    groups: dict[tuple[tuple[str, str], ...], dict[str, tuple[int, VersionEvaluation]]] = {}
    for number, evaluation in versions:
        same = {k: v for k, v in evaluation.params.items() if k != SEED and not k.startswith(WITHOUT_EFFECT)}
        groups.setdefault(tuple(sorted(same.items())), {})[evaluation.params[SEED]] = (number, evaluation)
    return [_spread(group) for group in groups.values() if len(group) > 1]


def spread_lines(spreads: Sequence[SeedSpread]) -> Iterable[str]:
    """Yield the spreads as lines for a terminal."""
    if not spreads:
        yield "no two versions differ in their seed alone; run the pipeline with --set seed=1 and so on"
    for spread in spreads:
        versions = ", ".join(map(str, spread.versions))
        yield f"versions {versions} (seeds {', '.join(spread.seeds)}), mean and standard deviation over the runs:"
        for (split, metric), figure in spread.scores.items():
            note = "  (the best of several: see selection.json)" if split == "dev" else ""
            yield f"  {split:15}{metric}  {figure.mean:5.1f} +- {figure.deviation:.1f}{note}"


def _spread(group: Mapping[str, tuple[int, VersionEvaluation]]) -> SeedSpread:
    scores: dict[tuple[Split, str], Spread] = {}
    for split in MEASURED_SPLITS:
        played = [evaluation.outcomes[split, SELECTED_POLICY] for _, evaluation in group.values()]
        for name, metric in METRICS.items():
            values = [metric(outcomes).value for outcomes in played]
            scores[split, name] = Spread(mean(values), stdev(values))
    return SeedSpread(tuple(number for number, _ in group.values()), tuple(group), scores)
