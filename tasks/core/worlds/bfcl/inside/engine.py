"""The engine: loads the tasks and their ground truth once, and forks judges and examiners."""

import contextlib
import socket
import time
from typing import Any

from tasks.core.confinement.inside import frames
from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.jail import Jail
from tasks.core.worlds.bfcl.inside.examiner import Examiner
from tasks.core.worlds.bfcl.inside.judge import Judge
from tasks.core.worlds.bfcl.inside.package import CATEGORIES

Tasks = dict[str, tuple[dict[str, Any], list[list[str]]]]
"""By id: the package's entry of a task, and its ground truth: the calls of each of the user's turns."""


class Engine(Forker):
    """The forker of judges and examiners. Reports on `control` when it is ready."""

    def __init__(self, control: int, limits: dict[str, Any]) -> None:
        super().__init__(socket.socket(fileno=control))
        self._tasks = load_tasks()
        self._jail = Jail(limits["confinement"], limits["judge_memory_bytes"], limits["judge_cpu_seconds"])
        self.ready()

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Become a judge or an examiner that serves the only descriptor."""
        kind = Judge if request["fork"] == "judge" else Examiner
        served = kind(self._tasks)
        self._jail.shut(descriptors[0], parent)
        while True:
            answer = served.answer(frames.receive(descriptors[0]))
            frames.send(descriptors[0], {**answer, "cpu_seconds": time.process_time()})


def load_tasks() -> Tasks:
    """Load all multi-turn tasks with the package's own loader."""
    from bfcl_eval import utils

    utils._get_file_lock = lambda _: contextlib.nullcontext()  # nobody writes these files
    tasks: Tasks = {}
    for name in CATEGORIES:
        category = f"multi_turn_{name}"
        entries, truths = utils.load_dataset_entry(category), utils.load_ground_truth_entry(category)
        for entry, truth in zip(entries, truths, strict=True):
            if entry["id"] != truth["id"] or len(entry["question"]) != len(truth["ground_truth"]):
                raise ValueError(f"{entry['id']}: its ground truth belongs to another task")
            tasks[entry["id"]] = entry, truth["ground_truth"]
    return tasks
