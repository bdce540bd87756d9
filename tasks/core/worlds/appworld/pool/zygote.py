"""Starting the zygote process (see `tasks.core.worlds.appworld.inside.episodes`)."""

import dataclasses
from pathlib import Path
from typing import Literal

from tasks.core.confinement.data_zygote import DataZygote
from tasks.core.worlds.appworld.interpreter import engine_variables
from tasks.core.worlds.appworld.pool.limits import PoolLimits

Confinement = Literal["auto", "seccomp", "audit"]

_MODULE = "tasks.core.worlds.appworld.inside.episodes.zygote"


def start_zygote(
    python: Path, root: Path, limits: PoolLimits, confinement: Confinement, task_frame: bytes
) -> DataZygote:
    """A zygote that forks, with an engine that is warm from a task's data. `root` holds `data/`. Raises WorldFault."""
    settings = {**dataclasses.asdict(limits), "confinement": confinement}
    command = [str(python), "-P", "-s"]
    zygote = DataZygote("AppWorld", command, _MODULE, settings, engine_variables(python, root))
    zygote.ready(limits.start_seconds, task_frame)
    return zygote
