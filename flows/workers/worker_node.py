"""The command of every machine but the pipeline's own when update.distributed.nodes > 1:

    python -m flows.workers.worker_node [PROJECT FOLDER]

It waits for updates (preflight's as well) in the project's folder, which all machines share at the same path, takes
part in each with this machine's ranks, and goes on until it is stopped.
"""

import argparse
import logging
import sys
import time
from pathlib import Path

from torch.distributed.elastic.rendezvous import RendezvousError

from tasks.core.learner.launcher import RankFailed, job_files, start_ranks
from tasks.core.learner.training import UpdateJob
from tasks.core.records.layout import Layout

_log = logging.getLogger("join")
_MODULE = "flows.workers.worker_node"


def main(arguments: list[str] | None = None) -> int:
    """Take part in every update of a project. A failed one is logged: the pipeline's own machine decides what next."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description="Take part in a project's updates.")
    parser.add_argument("project", type=Path, nargs="?", default=Path(), help="the folder that all machines share")
    project = Layout(parser.parse_args(arguments).project.resolve())
    if not (params := project.root / "params.yaml").exists():
        print(f"{_MODULE}: {params}: missing; name the project's folder, that of params.yaml", file=sys.stderr)
        return 1
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    done: set[tuple[Path, int]] = set()
    _log.info("waiting for updates in %s", project.root)
    try:
        while True:
            for place in (project, Layout(project.preflight_project)):
                for file in sorted(job_files(place)):
                    _take_part(file, done)
            time.sleep(0.5)
    except KeyboardInterrupt:
        return 130


def _take_part(file: Path, done: set[tuple[Path, int]]) -> None:
    try:
        mark = (file, file.stat().st_mtime_ns)
        job = UpdateJob.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    if mark in done:
        return
    done.add(mark)
    _log.info("update_policy@%s: joining with %d ranks", job.key, job.update.distributed.ranks)
    try:
        start_ranks(job, file.parent)
    except RankFailed as error:
        _log.error("%s", error)
    except RendezvousError as error:  # a killed pipeline leaves its job's file, and nobody at the place to meet
        _log.error(
            "update_policy@%s: no other machine came to %s: %s", job.key, job.update.distributed.rendezvous, error
        )


if __name__ == "__main__":
    sys.exit(main())
