"""Cost of the most expensive figure of the collapse monitor: its share of an update's CPU time.

python tests/benchmarks/prompt_information.py FOLDER     (a project that was trained)

Repeats the first update of that project with the measurement and without, in turns, in a folder of its own.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median

from result_file import write_result

from flows.params_file import write_params
from flows.profile_stack import read_mapping
from tasks.core.config.params import load_params
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.records.layout import Layout
from tasks.core.records.monitoring import write_neutral
from tasks.update_policy import update_policy

REPEATS = 3
READ = ("policy", "iterations/i000/policy", "iterations/i001/training_batch.parquet", "iterations/i001/advantages.json")


def seconds(source: Path) -> dict[bool, list[float]]:
    """CPU seconds of the first update, {measured: [...], not: [...]}; the base model is loaded before."""
    found: dict[bool, list[float]] = {True: [], False: []}
    cache = ProcessCache()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path in READ:
            (root / "data" / path).parent.mkdir(parents=True, exist_ok=True)
            (root / "data" / path).symlink_to((source / "data" / path).resolve())
        write_neutral(Layout(root))
        write_params(root / "params.yaml", read_mapping(source / "params.yaml"))
        inputs = UpdateInputs.of(load_params(root / "params.yaml"))
        without = inputs.model_copy(update={"information": inputs.information.model_copy(update={"prompts": 0})})
        for turn in range(REPEATS + 1):
            for measured in (True, False):
                start = time.process_time()
                update_policy(StageContext(Layout(root), inputs if measured else without, "i001", cache))
                found[measured] += [time.process_time() - start] if turn else []
    cache.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    params, found = read_mapping(folder / "params.yaml"), seconds(folder)
    with_it, without = median(found[True]), median(found[False])
    write_result(
        "prompt_information",
        {
            "profiles": params["profiles"],
            "sample": params["monitor"]["information"],
            "update_s": {"with": round(with_it, 2), "without": round(without, 2)},
            "share_of_update": round(1 - without / with_it, 3),
        },
    )


if __name__ == "__main__":
    main()
