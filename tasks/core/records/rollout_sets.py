"""A run's rollouts for viewing one by one: in the report's viewer, and as traces in MLflow."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import ScoringInputs
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS, SCORED_ROLLOUTS
from tasks.core.records.tables import read_table


@dataclass(frozen=True)
class RolloutSet:
    """One table of rollouts."""

    name: str
    """File name of its script and its key in the page: "i003", "dev_i004", "test_normal"."""
    label: str
    path: Path
    schema: pa.Schema
    batch: Path | None = None
    """The training batch made from it: which rollouts were kept, and their advantages."""
    timings: Path | None = None
    """Times at which its turns were played; None if not recorded."""

    def read(self, *, trusted: bool = False) -> pa.Table:
        """Return the rollouts (see `read_table`); of evaluations only the first run, as the others differ by seed."""
        table = read_table(self.path, self.schema, trusted=trusted)
        if "evaluation_run" not in table.column_names:
            return table
        return table.filter(pc.equal(table["evaluation_run"], pc.min(table["evaluation_run"])))


def training_set(layout: Layout, key: str) -> RolloutSet:
    """Return the set of rollouts sampled in iteration `key`."""
    label = f"iteration {int(key[1:])}"
    return RolloutSet(key, label, layout.rollouts(key), ROLLOUTS, layout.training_batch(key), layout.timings(key))


def dev_set(layout: Layout, key: str) -> RolloutSet:
    """Return the dev evaluation of the policy after iteration `key`."""
    label = f"dev, iteration {int(key[1:])}"
    return RolloutSet(f"dev_{key}", label, layout.evaluation_rollouts(key), SCORED_ROLLOUTS)


def rollout_sets(layout: Layout, params: Params, splits: Sequence[str]) -> Iterator[RolloutSet]:
    """Return the training rollouts of each iteration, then the dev evaluations, then the final scores."""
    yield from (training_set(layout, key) for key in params.dag.sampled)
    yield from (dev_set(layout, key) for key in params.dag.evaluated)
    for split in splits:
        yield RolloutSet(split, split, layout.score_rollouts(split), SCORED_ROLLOUTS)
        if ScoringInputs.of(params).plays_again:
            name, label = f"{split}_training_budget", f"{split} at the training budget"
            yield RolloutSet(name, label, layout.training_budget_rollouts(split), SCORED_ROLLOUTS)


def viewer_places(name: str, table: pa.Table) -> list[str]:
    """Return the address fragments (after #) at which the report's viewer shows the rollouts of the set `name`."""
    rows = len(table)
    policies = table["policy"].to_pylist() if "policy" in table.column_names else [""] * rows
    shown = [f"{name}:{policy}" for policy in policies] if len(set(policies)) > 1 else [name] * rows
    keys = zip(shown, table["task_id"].to_pylist(), table["rollout_index"].to_pylist(), strict=True)
    return ["/".join(quote(str(part), safe="!~*'()") for part in key) for key in keys]


def script(variable: str, key: str, content: Any) -> str:
    """Return JavaScript that stores `content` under window.<variable>[key]. Pure ASCII: no text can end the script.

    A page opened from a file may not fetch JSON, but it may load a script.
    """
    data = json.dumps(content, separators=(",", ":"), allow_nan=False)
    safe = data.replace("<", "\\u003c").replace(">", "\\u003e")
    return f"(window.{variable}=window.{variable}||{{}})[{json.dumps(key)}]={safe};\n"
