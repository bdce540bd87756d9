"""The command of every machine except the pipeline's own when update.distributed.nodes > 1.

It waits for updates (preflight's as well) in the project's folder, which all machines share at the same path, takes
part in each with this machine's ranks, and goes on until it is stopped.
"""

import logging
import time
from pathlib import Path
from typing import NoReturn

from tasks.core.config.params import ParamsError
from tasks.core.learner.ranks import RankFailed, job_files, start_ranks
from tasks.core.learner.training import UpdateJob
from tasks.core.records.layout import Layout

_log = logging.getLogger("join")


def take_part(folder: Path) -> NoReturn:
    """Take part in every update of the project in `folder`. Raises ParamsError where there is none.

    A failed update is logged: the pipeline's own machine decides what happens next.
    """
    project = Layout(folder)
    if not project.params.exists():
        raise ParamsError(f"{project.params}: missing; name the project's folder, that of params.yaml")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    done: set[tuple[Path, int]] = set()
    _log.info("waiting for updates in %s", folder)
    while True:
        for layout in (project, Layout(project.preflight_project)):
            for file in sorted(job_files(layout)):
                _take_part(file, done)
        time.sleep(0.5)


def _take_part(file: Path, done: set[tuple[Path, int]]) -> None:
    try:
        mark = (file, file.stat().st_mtime_ns)
        job = UpdateJob.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    if mark in done:
        return
    done.add(mark)
    _log.info("update_policy@%s: joining with %d ranks", job.key, job.inputs.update.distributed.ranks)
    try:
        start_ranks(job, file.parent, holds_store=False)
    except (
        RankFailed,
        ParamsError,
    ) as error:  # of a killed pipeline, too, which leaves its job's file and nobody to meet
        _log.error("%s", error)
