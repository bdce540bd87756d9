"""Have BFCL's own package converse with score rollouts and judge them, and hold its verdicts against ours."""

from collections.abc import Mapping, Sequence

from flows.appworld_export import read_rows
from tasks.core.config.params import Params
from tasks.core.config.splits import Split
from tasks.core.evaluation.scored_rows import Row, answers
from tasks.core.policies.loading import load_chat_format
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.core.worlds.bfcl.export import Examined, examine
from tasks.core.worlds.bfcl.interpreter import python_executable
from tasks.core.worlds.bfcl.pool import BfclPool


def examined_rows(layout: Layout, split: Split, policy: str, run: int) -> tuple[list[Row], dict[str, Examined]]:
    """Return the score rollouts and the package's verdicts by task.

    Raises ArtifactError, ParamsError, InterpreterUnavailable and WorldFault.
    """
    params = recorded_params(layout)
    rows = read_rows(layout, split, policy, run)
    return rows, export(layout, params, rows)


def export(layout: Layout, params: Params, rows: Sequence[Row]) -> dict[str, Examined]:
    """Return the package's verdicts by task. Raises ArtifactError when the run's world is not BFCL, WorldFault."""
    if params.world.name != "bfcl":
        raise ArtifactError(
            f"the run in data/ is of world.name {params.world.name}; only BFCL's rollouts can be exported"
        )
    chat = load_chat_format(layout.base_policy)
    pool = BfclPool(python_executable())
    try:
        return examine(pool, {row["task_id"]: answers(row, chat) for row in rows})
    finally:
        pool.close()


def differing(rows: Sequence[Row], examined: Mapping[str, Examined]) -> list[str]:
    """Return the tasks that the package judges otherwise than we did."""
    return [row["task_id"] for row in rows if row["success"] != examined[row["task_id"]].valid]


def comparison(rows: Sequence[Row], examined: Mapping[str, Examined]) -> list[str]:
    """Return the comparison in lines: accuracy by category and overall, ours and the package's."""
    categories = sorted({_category(row) for row in rows})
    parts = [(name, [row for row in rows if _category(row) == name]) for name in categories]
    lines = [f"{'percent of tasks':28} {'recorded':>9} {'package':>9}"]
    for name, part in [*parts, ("all", list(rows))]:
        ours = sum(row["success"] for row in part)
        theirs = sum(examined[row["task_id"]].valid for row in part)
        lines.append(f"{name:28} {100 * ours / len(part):9.1f} {100 * theirs / len(part):9.1f}")
    return [*lines, f"judged otherwise: {', '.join(differing(rows, examined)) or 'none'}"]


def _category(row: Row) -> str:
    return str(row["task_id"]).rpartition("_")[0]


if __name__ == "__main__":
    from flows.moved import moved

    moved("export bfcl")
