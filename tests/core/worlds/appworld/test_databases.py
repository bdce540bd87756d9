"""Databases that serve one task after another are, byte for byte of their SQL, those that the package would load."""

import json
import subprocess
from pathlib import Path

import pytest

from tasks.core.worlds.appworld.root import layout
from tasks.core.worlds.appworld.root.layout import engine_variables

pytestmark = pytest.mark.appworld


def test_a_task_held_after_others_is_as_the_package_loads_it(appworld_python: Path, appworld_root: Path) -> None:
    script = Path(__file__).with_name("task_databases.py")
    tasks = sorted(folder.name for folder in (appworld_root / "data" / "tasks").glob("*_2"))
    done = subprocess.run(
        [appworld_python, script, str(Path(__file__).parents[4]), *tasks],
        env=engine_variables(appworld_python, appworld_root),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    held = [one for one in results if "task_id" in one]
    assert [one["task_id"] for one in held] == tasks
    assert all(not one["different"] and not one["unclean"] for one in held), held
    used = [set(one["used"]) for one in results if "used" in one]
    assert all(len(apps) >= len(layout.DATABASES) - 2 for apps in used), used[0]
