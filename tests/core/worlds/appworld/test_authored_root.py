"""Our own root on the real engine: every oracle solves its task, nothing else does; same seed, same bytes.

Databases that serve one task after another are, byte for byte of their SQL, those that the package would load."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.records.files import digest
from tasks.core.worlds.appworld import layout
from tasks.core.worlds.appworld.inside.authoring.people import ACCOUNTS
from tasks.core.worlds.appworld.layout import engine_variables, verify_root
from tasks.core.worlds.appworld.prepared_root import AuthoringFailed, author_root

pytestmark = pytest.mark.appworld
SEED = 2502  # of the shared root
UNSEEN_APPS = {"amazon", "gmail", "splitwise"}
UNSEEN_TEMPLATES = {"contact_note", "note_from_playlist"}
"""Of apps that train has, but in test_challenge alone."""
SMALL = dict.fromkeys(SPLITS, 3)


def _task_ids(root: Path) -> list[str]:
    return [task.task_id for tasks in verify_root(root).tasks.values() for task in tasks]


def _ground_truth(root: Path, task_id: str, name: str) -> Any:
    return json.loads((root / "data" / "tasks" / task_id / "ground_truth" / name).read_text())


def test_oracles_solve_their_tasks_in_the_whole_engine_and_nothing_less_does(
    appworld_python: Path, appworld_root: Path, task_of_each_template: list[str], tmp_path: Path
) -> None:
    # The generator itself checks every task, without the shell; a task takes ten seconds here.
    task_ids = task_of_each_template[::9]
    (tmp_path / "data").symlink_to(appworld_root / "data")  # outputs go to tmp_path
    script = Path(__file__).with_name("whole_engine.py")
    done = subprocess.run(
        [appworld_python, script, *task_ids],
        env=engine_variables(appworld_python, tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [result["task_id"] for result in results] == task_ids
    for result in results:
        assert result["tests"] >= 2, result
        assert result["labels_hold"] and result["idle"], result
        assert result["oracle"] == [], result
        assert result["surplus"], result


def test_root_has_what_the_pipeline_needs(appworld_root: Path) -> None:
    report = verify_root(appworld_root)
    every = [task for tasks in report.tasks.values() for task in tasks]
    templates = {_ground_truth(appworld_root, task.task_id, "metadata.json")["template"] for task in every}
    apps = {app for task in every for app in _ground_truth(appworld_root, task.task_id, "required_apps.json")}
    assert len(templates) >= 40 and apps == {*ACCOUNTS}
    for split in ("train", "test_normal", "test_challenge"):
        assert {task.difficulty for task in report.tasks[split]} == {1, 2, 3}
    for split, tasks in report.tasks.items():
        scenarios = [task.scenario_id for task in tasks]
        assert all(scenarios.count(scenario) == 3 for scenario in scenarios)
        for task in tasks:
            unseen = UNSEEN_APPS & set(_ground_truth(appworld_root, task.task_id, "required_apps.json"))
            template = _ground_truth(appworld_root, task.task_id, "metadata.json")["template"]
            assert (bool(unseen) or template in UNSEEN_TEMPLATES) == (split == "test_challenge")


PLAN = """
import json, sys; sys.path.insert(0, "tasks/core/worlds/appworld")
from inside.authoring.plan import plan_tasks
from inside.authoring.scenarios import TEMPLATES
from inside.authoring.world import make_world
counts = {"train": 105, "dev": 60, "test_normal": 168, "test_challenge": 417, "demonstrations": 129}
for seed in map(int, sys.argv[1:]):
    for task in plan_tasks(make_world(seed), TEMPLATES, counts, seed):
        print(json.dumps([task.split, task.template.name, task.draw.instruction]))
"""


def test_no_instruction_of_dev_or_a_test_is_ever_shown(appworld_python: Path) -> None:
    """In the official numbers, over two worlds and two roots of demonstrations."""
    command = [str(appworld_python), "-c", PLAN, str(SEED), "101"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[4])
    planned = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(planned) == 2 * (105 + 60 + 168 + 417 + 129)
    shown = {text for split, _, text in planned if split in ("train", "demonstrations")}
    held_out = {text for split, _, text in planned if split not in ("train", "demonstrations")}
    assert shown & held_out == set()
    assert len(shown) > 300 and len(held_out) > 800
    dev = {text for split, _, text in planned if split == "dev"}
    assert dev & {text for split, _, text in planned if split.startswith("test")} == set()
    demonstrated = {template for split, template, _ in planned if split == "demonstrations"}
    unshown = {template for split, template, _ in planned if split == "test_challenge"} - demonstrated
    assert UNSEEN_TEMPLATES | {"expense_group", "group_members", "group_rename", "cart_drop"} == unshown


def test_tasks_of_a_scenario_differ(appworld_root: Path) -> None:
    tasks = [task for tasks in verify_root(appworld_root).tasks.values() for task in tasks]
    people = {
        task.task_id: json.loads((appworld_root / "data" / "tasks" / task.task_id / "specs.json").read_text())[
            "supervisor"
        ]["email"]
        for task in tasks
    }
    assert len({(task.scenario_id, people[task.task_id]) for task in tasks}) == len(tasks)


def test_same_seed_same_bytes_whatever_other_tasks_a_root_has(
    appworld_python: Path, appworld_root: Path, tmp_path: Path
) -> None:
    author_root(tmp_path / "small", appworld_python, SEED, SMALL)
    for folder in ("base_dbs", "api_docs"):
        assert digest(tmp_path / "small" / "data" / folder) == digest(appworld_root / "data" / folder)
    ids = _task_ids(tmp_path / "small")
    assert set(ids) < set(_task_ids(appworld_root))
    for task_id in ids:
        assert digest(tmp_path / "small" / "data" / "tasks" / task_id) == digest(
            appworld_root / "data" / "tasks" / task_id
        )
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_failed_generation_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AuthoringFailed, match="exit 1"):
        author_root(tmp_path / "root", Path("/usr/bin/false"), 1, SMALL)
    assert list(tmp_path.iterdir()) == []


def test_counts_are_whole_scenarios(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train: 4 tasks.*3"):
        author_root(tmp_path / "root", Path("/usr/bin/false"), 1, SMALL | {"train": 4})


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


@pytest.mark.appworld
def test_engine_starts_without_touching_the_home_directory(appworld_python: Path, tmp_path: Path) -> None:
    variables = engine_variables(appworld_python, tmp_path) | {"HOME": str(tmp_path / "home")}
    code = "import pydantic, appworld; assert pydantic.VERSION < '2'; print(len(appworld.apps.get_all_apps()))"
    done = subprocess.run([appworld_python, "-c", code], env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stderr
    assert not (tmp_path / "home").exists()
