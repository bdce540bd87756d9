"""A task as the engine's processes need it, read from its root. Never its ground truth."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.core.confinement.inside.frames import encode
from tasks.core.interfaces.world import WorldFault
from tasks.core.records.files import read_json_lines
from tasks.core.worlds.appworld.root import layout


@dataclass(frozen=True)
class TaskData:
    """Specs, and the changes that make the task's databases of the base ones."""

    task_id: str
    instruction: str
    supervisor: dict[str, str]
    datetime: str
    """ISO 8601; clocks stand there during an episode."""
    changes: dict[str, list[Any]]
    """By app: [SQL, parameters, many]."""

    @cached_property
    def message(self) -> dict[str, Any]:
        """The task as worlds and evaluators are told it."""
        names = ("task_id", "supervisor", "datetime", "changes")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def frame(self) -> bytes:
        """`message`, encoded."""
        return encode(self.message)

    @cached_property
    def opening_frame(self) -> bytes:
        """The request to a world to be this task's."""
        return encode({"open": self.message})


def read_task_data(root: Path, task_id: str) -> TaskData:
    """Read a task. Raises WorldFault when it does not exist or is broken; the message names the file."""
    folder = layout.task_folder(root, task_id)
    if not folder.is_dir():
        raise WorldFault(f"the task {task_id} doesn't exist: there is no {folder}")
    try:
        specs = json.loads((folder / "specs.json").read_text(encoding="utf-8"))
        if specs["db_version"] != layout.DB_VERSION:
            raise ValueError(f"db_version is {specs['db_version']}, the engine needs {layout.DB_VERSION}")
        supervisor = specs.get("supervisor") or specs["main_user"]
        names = ("first_name", "last_name", "email", "phone_number")
        return TaskData(
            task_id,
            specs["instruction"],
            {name: supervisor[name] for name in names},
            specs["datetime"],
            {app: read_json_lines(folder / "dbs" / f"{app}.jsonl") for app in layout.DATABASES},
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorldFault(f"{folder}: the task is broken: {type(error).__name__}: {error}") from error
