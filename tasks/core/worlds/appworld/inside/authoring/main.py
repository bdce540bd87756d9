"""Entry of the generator: writes a whole root into the folder that the caller gives and renames afterwards."""

import os
from pathlib import Path

from .calibration import calibrate_task
from .databases import frozen_at, write_base_databases
from .plan import plan_tasks
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
        for task in tasks:
            write_task(folder, task, seed)
            calibrate_task(folder, task.task_id)
            print("done", flush=True)

    (folder / "data" / "datasets").mkdir()
    for split in counts:
        ids = "".join(f"{task.task_id}\n" for task in tasks if task.split == split)
        (folder / "data" / "datasets" / f"{split}.txt").write_text(ids, encoding="utf-8")
