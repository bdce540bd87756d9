"""Have BFCL's own package converse with score rollouts and judge them, and hold its verdicts against ours.

    python -m flows.bfcl_export SPLIT FOLDER [--policy selected] [--run 0]

FOLDER gets the package's result files. Exit code 1: an input is missing, or the package judges a task otherwise.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.appworld_export import parsed_arguments, read_rows
from tasks.core.config.params import Params, ParamsError
from tasks.core.evaluation.scored_rows import Row, answers
from tasks.core.interfaces.world import WorldFault
from tasks.core.policies.loading import load_chat_format
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.core.worlds.bfcl.export import Examined, examine, require_new, write_results
from tasks.core.worlds.bfcl.interpreter import InterpreterUnavailable, python_executable
from tasks.core.worlds.bfcl.pool import BfclPool


def main(arguments: list[str] | None = None) -> int:
    """Parse, examine, compare."""
    parsed = parsed_arguments("python -m flows.bfcl_export", __doc__, arguments)
    layout = Layout(Path.cwd())
    try:
        require_new(parsed.folder)
        params = recorded_params(layout)
        rows = read_rows(layout, parsed.split, parsed.policy, parsed.run)
        examined = export(layout, params, rows)
        print("\n".join(comparison(rows, examined)))
        write_results(parsed.folder, f"loopline_{parsed.split}", examined)
    except (ArtifactError, ParamsError, InterpreterUnavailable, WorldFault) as error:
        print(f"flows.bfcl_export: {error}", file=sys.stderr)
        return 1
    return 1 if differing(rows, examined) else 0


def export(layout: Layout, params: Params, rows: Sequence[Row]) -> dict[str, Examined]:
    """The package's verdicts by task. Raises ArtifactError when the run's world is not BFCL, WorldFault."""
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
    """Tasks that the package judges otherwise than we did."""
    return [row["task_id"] for row in rows if row["success"] != examined[row["task_id"]].valid]


def comparison(rows: Sequence[Row], examined: Mapping[str, Examined]) -> list[str]:
    """Lines for people: accuracy by category and over all, ours and the package's."""
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
    sys.exit(main())
