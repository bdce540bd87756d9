"""The recorded rollouts that an export names: a split's of one policy, or an iteration's."""

import pyarrow as pa
import pyarrow.compute as pc

from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.exports.rollout_dataset import RolloutSource
from tasks.core.lineage.params_and_metrics import registered_model
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import of_other_knobs, recorded_params
from tasks.core.records.schemas import BASE_POLICY, ROLLOUTS, SCORED_ROLLOUTS
from tasks.core.records.scores import Selection
from tasks.core.records.tables import read_table


class UnknownRollouts(ValueError):  # noqa: N818
    """No split or iteration of the run has this name; the message lists those that it has."""


def rollouts_of(layout: Layout, name: str, policy: str) -> RolloutSource:
    """Return the rollouts of a split or an iteration; of a split those of the base or of the selected policy.

    Raises UnknownRollouts, ParamsError and ArtifactError.
    """
    params = recorded_params(layout)
    if name in params.dag.sampled:
        made_by = ("search_trees" if name in params.dag.searched else "collect_rollouts"), name
        split, table = "train", read_table(layout.rollouts(name), ROLLOUTS)
    elif name == "dev":
        selected = read_document(layout.selection, Selection).iteration
        key = params.dag.evaluated[0] if policy == BASE_POLICY else selected
        made_by = "evaluate_policy", key
        split, table = "dev", read_table(layout.evaluation_rollouts(key), SCORED_ROLLOUTS)
    elif name in TEST_SPLITS:
        made_by = "score", name
        split, table = name, _of_policy(read_table(layout.score_rollouts(name), SCORED_ROLLOUTS), policy)
    else:
        raise UnknownRollouts(f"{name}: no split or iteration of this run; there are {', '.join(_names(params))}")
    for line in of_other_knobs(layout, [made_by]):
        raise ArtifactError(line)
    return RolloutSource(name, split, table, params.world.name, registered_model(params))


def _of_policy(table: pa.Table, policy: str) -> pa.Table:
    return table.filter(pc.equal(table["policy"], policy))


def _names(params: Params) -> list[str]:
    return ["dev", *TEST_SPLITS, *params.dag.sampled]
