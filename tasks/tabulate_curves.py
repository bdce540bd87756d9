"""Stage tabulate_curves: one row per iteration, from the iteration's own artifacts."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from tasks.core.config.dag import iteration_key
from tasks.core.config.stage_inputs import CurveInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import dotted, read_document
from tasks.core.records.files import replacing
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Evaluation
from tasks.core.records.training import CURVE_FIGURES, Metrics

NESTED_FIGURES = {
    "response_length": "responses.length",
    "repetition": "responses.repetition",
    "distinct_responses": "responses.distinct",
    "prompt_information": "prompt_information.share",
}
"""Further figures of metrics.json, by their dotted names there."""
DEV_FIGURES = {"dev_tgc": "tgc", "dev_sgc": "sgc"}

Row = Mapping[str, float | int | None]


def tabulate_curves(context: StageContext[CurveInputs]) -> None:
    """Write data/learning_curves.csv: iteration (0: the base), the update's figures, TGC and SGC on dev in percent.

    A figure that an iteration does not have (no update at 0, no evaluation, nothing to train on) is left empty.
    """
    keys = {iteration_key(number): number for number in range(context.inputs.iterations + 1)}
    evaluated = set(context.inputs.evaluated)
    rows = [
        {"iteration": number, **_update(context.layout, key), **_dev(context.layout, key, key in evaluated)}
        for key, number in keys.items()
    ]
    write_curves(context.layout.learning_curves, rows)


def write_curves(path: Path, rows: Iterable[Row]) -> None:
    """Write the table as CSV, atomically."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(
            stream, ["iteration", *CURVE_FIGURES, *NESTED_FIGURES, *DEV_FIGURES], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)


def _update(layout: Layout, key: str) -> Row:
    if key == "i000":
        return dict.fromkeys((*CURVE_FIGURES, *NESTED_FIGURES))
    figures = dotted(read_document(layout.metrics(key), Metrics).model_dump(mode="json"))
    names = dict(zip(CURVE_FIGURES, CURVE_FIGURES, strict=True)) | NESTED_FIGURES
    return {name: figures.get(dotted_name) for name, dotted_name in names.items()}


def _dev(layout: Layout, key: str, evaluated: bool) -> Row:
    if not evaluated:
        return dict.fromkeys(DEV_FIGURES)
    evaluation = read_document(layout.evaluation(key), Evaluation)
    return {name: getattr(evaluation, field) for name, field in DEV_FIGURES.items()}
