"""The engine: loads the tasks with their assertions and solutions once, and forks judges."""

import json
import socket
import time
from typing import Any

from tasks.core.confinement.inside import frames
from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.jail import Jail
from tasks.core.worlds.tau2.inside.judge import Judge
from tasks.core.worlds.tau2.inside.package import Domain


class Engine(Forker):
    """The forker of judges. Reports on `control` when it is ready."""

    def __init__(self, control: int, domain: Domain, limits: dict[str, Any]) -> None:
        super().__init__(socket.socket(fileno=control))
        rows = json.loads((domain.folder / "tasks.json").read_text(encoding="utf-8"))
        splits = json.loads((domain.folder / "split_tasks.json").read_text(encoding="utf-8"))
        self._judge = Judge(domain, {row["id"]: row for row in rows}, splits)
        self._jail = Jail(limits["confinement"], limits["judge_memory_bytes"], limits["judge_cpu_seconds"])
        self.ready()

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """Become a judge that serves the only descriptor."""
        self._jail.shut(descriptors[0], parent)
        while True:
            answer = self._judge.answer(frames.receive(descriptors[0]))
            frames.send(descriptors[0], {**answer, "cpu_seconds": time.process_time()})
