"""Entry of the generator: writes a whole root into the folder that the caller gives and renames afterwards."""

import os
import traceback
from pathlib import Path
from typing import NoReturn

from .calibration import calibrate_task
from .databases import frozen_at, write_base_databases
from .plan import PlannedTask, plan_tasks
from .scenarios import TEMPLATES
from .world import NOW, make_world
from .writing import write_task


def author_root(root: str, seed: int, counts: dict[str, int]) -> None:
    """Write a root; prints `done` per task for a progress bar."""
    os.environ["APPWORLD_ROOT"] = root
    folder = Path(root)
    world = make_world(seed)
    tasks = plan_tasks(world, TEMPLATES, counts, seed)
    write_base_databases(folder, world, seed)
    with frozen_at(NOW):  # once, for freezegun looks through every module each time
        _write_tasks(folder, tasks, seed, len(os.sched_getaffinity(0)))
    (folder / "data" / "datasets").mkdir()
    for split in counts:
        ids = "".join(f"{task.task_id}\n" for task in tasks if task.split == split)
        (folder / "data" / "datasets" / f"{split}.txt").write_text(ids, encoding="utf-8")


def _write_tasks(folder: Path, tasks: list[PlannedTask], seed: int, processes: int) -> None:
    """Write and calibrate the tasks, in as many forked processes. Each task's bytes depend on itself and the base."""
    children = []
    for place in range(processes):
        child = os.fork()
        if not child:
            _write_share(folder, tasks[place::processes], seed)
        children.append(child)
    if failed := [child for child in children if os.waitpid(child, 0)[1]]:
        raise RuntimeError(f"{len(failed)} of {processes} processes failed; see above")


def _write_share(folder: Path, tasks: list[PlannedTask], seed: int) -> NoReturn:
    """In a forked process: write tasks, then end. An error is printed."""
    try:
        for task in tasks:
            write_task(folder, task, seed)
            calibrate_task(folder, task.task_id)
            print("done", flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
