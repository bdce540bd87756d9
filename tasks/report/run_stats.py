"""The figures of every iteration, read from the artifacts that params.yaml implies."""

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.core.collapse.rules import read_warnings
from tasks.core.config.dag import iteration_key
from tasks.core.config.params import Params
from tasks.core.pages.tables import void_note
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Evaluation
from tasks.core.records.training import CURVE_FIGURES, CollapseWarning, Metrics

FALL = 10.0
"""Points of TGC under the best before that count as lost skill,"""
PATIENCE = 2
"""in this many evaluations in a row."""


def lost_skill(dev_tgc: Mapping[int, float]) -> list[CollapseWarning]:
    """Return a warning at the first of PATIENCE evaluations in a row that are FALL points or more under the best.

    `dev_tgc`: in percent, by the evaluated iteration, 0 the base policy. Empty where there is no such fall.
    """
    best, low = 0.0, list[int]()
    for iteration, value in sorted(dev_tgc.items()):
        low = [*low, iteration] if value <= best - FALL else []
        if len(low) == PATIENCE:
            evidence = f"TGC on dev fell {FALL:g} points or more under its best ({best:.1f}) and stayed there"
            return [CollapseWarning(rule="lost_skill", iteration=low[0], evidence=evidence)]
        best = max(best, value)
    return []


@dataclass(frozen=True)
class RunStats:
    """A run in numbers. Lists hold one value per iteration, iteration 1 first; None where there is no value.

    Wall-clock figures are left out, so that equal runs have equal reports.
    """

    curves: Mapping[str, list[float | None]]
    notes: list[tuple[int, str]]
    """(iteration, the note of its update, or that world errors took rollouts of it or of its dev evaluation)."""
    warnings: list[CollapseWarning]
    """The collapse monitor's warnings, by iteration."""
    evaluations: Mapping[int, Evaluation]
    """Dev scores by iteration, 0 (the base) included."""


def read_run_stats(layout: Layout, params: Params) -> RunStats:
    """Raises ArtifactError naming the file that is missing or broken."""
    metrics = [read_document(layout.metrics(key), Metrics) for key in params.dag.previous]
    evaluations = {int(key[1:]): read_document(layout.evaluation(key), Evaluation) for key in params.dag.evaluated}
    return RunStats(
        curves=_curves(metrics),
        notes=[
            *((i, item.note) for i, item in enumerate(metrics, 1) if item.note),
            *((i, _lost(item)) for i, item in enumerate(metrics, 1) if item.lost_rollouts),
            *((i, f"dev TGC: {void_note(e.void_rollouts)}") for i, e in evaluations.items() if e.void_rollouts),
        ],
        warnings=read_warnings(layout, iteration_key(params.iterations)),
        evaluations=evaluations,
    )


def _curves(metrics: list[Metrics]) -> dict[str, list[float | None]]:
    curves = {name: [getattr(item, name) for item in metrics] for name in CURVE_FIGURES}
    for name in ("mean", "max"):
        curves[f"mismatch_{name}"] = [m.engine_mismatch and getattr(m.engine_mismatch, name) for m in metrics]
    for name in ("length", "repetition", "distinct"):
        curves[name] = [item.responses and getattr(item.responses, name) for item in metrics]
    curves["information"] = [item.prompt_information and item.prompt_information.share for item in metrics]
    return curves


def _lost(metrics: Metrics) -> str:
    return f"world errors took {metrics.lost_rollouts} rollouts of {metrics.shrunk_groups} groups"
