"""Tasks whose groups of rollouts are likely to carry a signal, by what the iterations before have seen."""

from collections.abc import Mapping, Sequence

from tasks.core.config.params import Predecessors, iteration_number
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS, VOID_REASONS
from tasks.core.records.tables import read_table
from tasks.core.signal_coverage import SuccessCounts


def signal_shares(
    layout: Layout, previous: Mapping[str, Predecessors], key: str, tasks: Sequence[str], group: int
) -> Mapping[str, float]:
    """Probability of each task that `group` rollouts of it carry a signal in iteration `key`; 1 before any was played.

    Reads the rollouts on which the policy that samples was trained, so that they are there whatever the order of
    stages is. Raises ArtifactError where they are damaged.
    """
    counts = SuccessCounts(tasks)
    for seen in rollouts_seen(previous, previous[key].behaviour):
        table = read_table(layout.rollouts(seen), ROLLOUTS).select(["task_id", "success", "end_reason"])
        found = table.to_pandas()
        valid = found[~found["end_reason"].isin(list(VOID_REASONS)) & found["task_id"].isin(list(tasks))]
        for task, successes in valid.groupby("task_id")["success"]:
            counts.add(str(task), float(successes.sum()), len(successes))
    return counts.shares(group) if counts else dict.fromkeys(tasks, 1.0)


def rollouts_seen(previous: Mapping[str, Predecessors], policy: str) -> list[str]:
    """Iterations whose rollouts a policy has been trained on, in order."""
    keys = [key for key in previous if iteration_number(key) <= iteration_number(policy)]
    return sorted({previous[key].batch for key in keys})
