"""One stage in this process, as `python -m flows.stage` means it.

With PREFECT_API_URL set, the stage is a Prefect flow run of its own; without, its plain function runs, because a
Prefect server would cost 5 s per stage.
"""

import argparse
import gc
import os
import sys
from pathlib import Path

from flows.dag.checkout_lock import checkout_lock
from flows.dag.dvc_seam import stopped_at
from flows.dag.stages import UnknownStage, find_stage, stage_label
from flows.errors import is_expected
from flows.run_summary import print_run_summary
from flows.runners.plain_runner import PlainRunner
from flows.signals import stop_cleanly_on_signals
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.processes.resources import spare_old_objects
from tasks.core.processes.running import Process, dvc_above


def main(arguments: list[str]) -> int:
    """Run a stage in a process of its own, until a signal or the end of its parent ends it; returns its exit code."""
    stop_cleanly_on_signals()
    spare_old_objects()
    cache = ProcessCache()
    try:
        return run_stage(arguments, cache, dvc_above())
    finally:
        cache.close()
        gc.freeze()  # else Python looks through all that torch loaded, for seconds, only to exit


def run_stage(arguments: list[str], cache: ProcessCache, dvc: Process | None) -> int:
    """Run the stage NAME [KEY] in the current folder, turn expected errors into a message and an exit code.

    `dvc`: the process that has the stage run, if one has.
    """
    parsed = _parsed(arguments)
    name, key, root, label = parsed.name, parsed.key, Path.cwd(), stage_label(parsed.name, parsed.key)
    try:
        find_stage(name)
        with checkout_lock(root, label, dvc=dvc):
            if url := os.environ.get("PREFECT_API_URL"):
                from flows.runners.prefect_server import require_server

                require_server(url)
                from flows.runners.prefect_runner import run_as_flow

                run_as_flow(name, key, root, cache)
            else:
                PlainRunner(root, cache).run(name, key)
        if name == "record_lineage":  # the last stage of `dvc repro`
            print_run_summary(root)
    except KeyboardInterrupt:
        print(stopped_at(label), file=sys.stderr)
        return 130
    except UnknownStage as error:
        print(f"flows.stage: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if not is_expected(error):
            raise
        print(f"{label}: {error}", file=sys.stderr)
        return 1
    return 0


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m flows.stage", description="Run one stage of the pipeline.")
    parser.add_argument("name", help="the stage, as in dvc.yaml")
    parser.add_argument("key", nargs="?", default="", help="its iteration (i003) or split (test_normal)")
    return parser.parse_args(arguments)
