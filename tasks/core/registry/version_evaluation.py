"""The evaluation stored with a model version: params, scores, and the outcome of every task played.

It is written into the version's folder `evaluation/`, so that versions can be compared without the pipeline that made
them.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS, Split
from tasks.core.evaluation.scored_rows import outcomes_by_policy
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.lineage.params_and_metrics import flat_params
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import read_json, write_json
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import BASE_POLICY, OUTCOMES, SCORED_ROLLOUTS, SELECTED_POLICY
from tasks.core.records.scores import Behaviour, MetricScore, Scores
from tasks.core.records.tables import read_table, write_table

FOLDER = "evaluation"


@dataclass(frozen=True)
class VersionEvaluation:
    """The evaluation of one version."""

    params: dict[str, str]
    """By dotted name, as text: the code of another version may have had other parameters."""
    outcomes: dict[tuple[str, str], list[Outcome]]
    """By split and policy ("base" or "selected")."""
    behaviour: dict[Split, Behaviour]
    """Behaviour of the selected policy, by test split."""
    own: dict[Split, MetricScore] = field(default_factory=dict)
    """The selected policy's score by the world's own metric, if the world has one."""


def write_evaluation(folder: Path, layout: Layout, params: Params, base: str, selected: str) -> None:
    """Write the evaluation of a finished pipeline; `base` and `selected` are iteration keys.

    Raises ArtifactError when an artifact is missing or damaged.
    """
    tables = [
        _dev_outcomes(layout, BASE_POLICY, base),
        _dev_outcomes(layout, SELECTED_POLICY, selected),
        *(read_table(layout.score_rollouts(split), SCORED_ROLLOUTS) for split in TEST_SPLITS),
    ]
    write_table(folder / "outcomes.parquet", pa.concat_tables(t.select(OUTCOMES.names) for t in tables), OUTCOMES)
    for split in TEST_SPLITS:
        write_document(folder / f"{split}.json", read_document(layout.score(split), Scores))
    write_json(folder / "params.json", flat_params(params))


def read_evaluation(folder: Path) -> VersionEvaluation:
    """Read an evaluation. Raises ArtifactError when a file is missing or damaged."""
    scores = {split: read_document(folder / f"{split}.json", Scores) for split in TEST_SPLITS}
    behaviour = {split: split_scores.behaviour.selected for split, split_scores in scores.items()}
    own_metric: dict[Split, MetricScore] = {
        split: split_scores.own for split, split_scores in scores.items() if split_scores.own is not None
    }
    table = read_table(folder / "outcomes.parquet", OUTCOMES)
    params: dict[str, str] = read_json(folder / "params.json")
    return VersionEvaluation(params, outcomes_by_policy(table.to_pylist()), behaviour, own_metric)


def scored_policy(folder: Path) -> str:
    """Return the digest of the weights whose evaluation lies in `folder`. Raises ArtifactError."""
    return read_document(folder / f"{TEST_SPLITS[0]}.json", Scores).adapter_digest


def _dev_outcomes(layout: Layout, policy: str, key: str) -> pa.Table:
    table = read_table(layout.evaluation_rollouts(key), SCORED_ROLLOUTS)
    index = table.schema.get_field_index("policy")
    return table.set_column(index, SCORED_ROLLOUTS.field("policy"), pa.array([policy] * len(table), pa.string()))
