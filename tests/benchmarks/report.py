"""How long the report of a long run takes to build, and to open in a browser.

    python tests/benchmarks/report.py FINISHED_RUN [--iterations 90] [--rollouts 240]

FINISHED_RUN is the folder of a project after `dvc repro` (any number of iterations). Its artifacts are copied; where it
has fewer iterations or rollouts than asked for, those that it has are taken again, under the next `rollout_index`, so
that every transcript is one that a policy played. The page is opened from its file in headless Chromium, each time in a
new profile; `open_ms` ends when all of its scripts have run and the page is laid out and painted.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from result_file import write_result

from tasks.core.config.params import Params, load_params
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS, TRAINING_BATCH
from tasks.core.records.tables import read_table, write_table
from tasks.report import report

sys.path.append(str(Path(__file__).parents[1] / "report"))
from browser import EXECUTABLE, Browser

OPENINGS = 5
PAINTED = """addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(() => {
  window.painted = performance.now();
})));"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--iterations", type=int, default=90)
    parser.add_argument("--rollouts", type=int, default=240)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        context = long_run(arguments.run, Path(folder), arguments.iterations, arguments.rollouts)
        started, processor = time.perf_counter(), time.process_time()
        report(context)
        built, worked = time.perf_counter() - started, time.process_time() - processor
        write_result(
            "report",
            {
                "iterations": arguments.iterations,
                "rollouts_per_iteration": arguments.rollouts,
                "rollouts": arguments.iterations * arguments.rollouts,
                "build_s": round(built, 1),
                "build_processor_s": round(worked, 1),
                **sizes(context.layout),
                **(in_browser(context.layout.report / "index.html") if EXECUTABLE else {"browser": None}),
            },
            packages=("pyarrow", "tokenizers"),
        )


def long_run(source: Path, folder: Path, iterations: int, rollouts: int) -> StageContext:
    """A project at `folder` with so many iterations of so many rollouts, made of those of `source`."""
    old, new = Layout(source), Layout(folder)
    had = load_params(source / "params.yaml")
    params = Params.model_validate({**had.model_dump(exclude={"dag"}), "iterations": iterations})
    for path in (old.world, old.base_policy, old.data / "scores", old.selection):
        copy = shutil.copytree if path.is_dir() else shutil.copyfile
        new.data.mkdir(exist_ok=True)
        copy(path, new.data / path.name)
    keys = list(had.dag.previous)
    for place, key in enumerate(params.dag.previous):
        taken = keys[place % len(keys)]
        new.iteration(key).mkdir(parents=True)
        shutil.copyfile(old.metrics(taken), new.metrics(key))
        shutil.copyfile(old.advantage_summary(taken), new.advantage_summary(key))
        stretch(old, new, key, keys[place % len(keys) :] + keys, rollouts)
    new.evaluations.mkdir()
    for place, key in enumerate(params.dag.evaluated):
        taken = had.dag.evaluated[place % len(had.dag.evaluated)]
        content = old.evaluation(taken).read_text().replace(f'"{taken}"', f'"{key}"')
        new.evaluation(key).write_text(content)
        shutil.copyfile(old.evaluation_rollouts(taken), new.evaluation_rollouts(key))
    return StageContext(new, params)


def stretch(old: Layout, new: Layout, key: str, keys: list[str], rollouts: int) -> None:
    """Rollouts of `keys`, one iteration after another, until there are enough; each iteration's under new indices."""
    played, trained, rows = list[pa.Table](), list[pa.Table](), 0
    for number, taken in enumerate(keys):
        if rows >= rollouts:
            break
        table = renumbered(read_table(old.rollouts(taken), ROLLOUTS), 100 * number).slice(0, rollouts - rows)
        played.append(table)
        batch = renumbered(read_table(old.training_batch(taken), TRAINING_BATCH), 100 * number)
        there = set(zip(table["task_id"].to_pylist(), table["rollout_index"].to_pylist(), strict=True))
        pairs = zip(batch["task_id"].to_pylist(), batch["rollout_index"].to_pylist(), strict=True)
        trained.append(batch.filter(pa.array([pair in there for pair in pairs], pa.bool_())))
        rows += table.num_rows
    write_table(new.rollouts(key), pa.concat_tables(played), ROLLOUTS)
    write_table(new.training_batch(key), pa.concat_tables(trained), TRAINING_BATCH)


def renumbered(table: pa.Table, add: int) -> pa.Table:
    place = table.schema.get_field_index("rollout_index")
    return table.set_column(
        place, table.schema.field(place), pc.add(table["rollout_index"], pa.scalar(add, pa.int32()))
    )


def sizes(layout: Layout) -> dict[str, Any]:
    """Sizes of the files in the report's folder, in megabytes."""
    data = [path.stat().st_size for path in (layout.report / "rollouts").iterdir() if path.name != "index.js"]
    return {
        "page_mb": round((layout.report / "index.html").stat().st_size / 1e6, 2),
        "index_mb": round((layout.report / "rollouts" / "index.js").stat().st_size / 1e6, 2),
        "data_mb": round(sum(data) / 1e6, 1),
        "largest_set_mb": round(max(data) / 1e6, 2),
    }


def in_browser(page: Path) -> dict[str, Any]:
    """Milliseconds: to open (median and worst), to read a rollout of a set not loaded yet, to search, to compare."""
    figures = [opening(page.as_uri()) for _ in range(OPENINGS)]
    opened = [figure.pop("open_ms") for figure in figures]
    rest = {name: round(statistics.median(figure[name] for figure in figures)) for name in figures[0]}
    return {
        "openings": OPENINGS,
        "open_ms": round(statistics.median(opened)),
        "open_worst_ms": round(max(opened)),
        **rest,
    }


def opening(address: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
        browser.before_each_page(PAINTED)
        browser.open(address)
        browser.wait("window.painted")
        opened = browser.run("window.painted")
        timed = "(async () => {{ const start = performance.now(); {}; return performance.now() - start; }})()"
        row = "loopline.rows.find(row => row.set.key === 'i050' || row.set.name === 'i001')"
        last = "loopline.rows.filter(row => row.advantage !== undefined).at(-1)"
        find = (
            "const f = document.getElementById('find'); document.getElementById('set').value = ''; f.value = 'set the'"
        )
        search = f"{find}; f.dispatchEvent(new Event('input', {{bubbles: true}})); document.body.offsetHeight"
        return {
            "open_ms": opened,
            "read_ms": browser.run(timed.format(f"await loopline.show({row}); document.body.offsetHeight")),
            "search_all_ms": browser.run(timed.format(search)),
            "compare_ms": browser.run(timed.format(f"await loopline.compareFrom({last}); document.body.offsetHeight")),
        }


if __name__ == "__main__":
    main()
