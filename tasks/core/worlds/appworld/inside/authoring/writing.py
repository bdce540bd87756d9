"""Writes one planned task into a root: specs, its world as changes of the base, ground truth."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from appworld.apps import get_all_apps
from appworld.apps.api_lib import set_local_random_seed
from appworld.collections.models import ModelCollection
from appworld.common.constants import CANARY_STRING, DB_VERSION

from .databases import payment_card, save_rows
from .people import Person
from .plan import PlannedTask
from .template import EVALUATION
from .walkthrough import walkthrough
from .world import NOW

_CANARY_COMMENT = f"# Canary String: {CANARY_STRING}\n"


def write_json(path: Path, content: Any) -> None:
    """JSON in the same bytes every time."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_task(root: Path, task: PlannedTask, seed: int) -> None:
    """Write `data/tasks/<id>`; `test_data.json` comes later, from `calibration`. Clocks must stand at NOW."""
    folder = root / "data" / "tasks" / task.task_id
    (folder / "ground_truth").mkdir(parents=True)
    write_json(folder / "specs.json", _specs(task))
    _write_databases(root, folder, task, seed)
    _write_ground_truth(folder / "ground_truth", task)


def _specs(task: PlannedTask) -> dict[str, Any]:
    person = task.person
    return {
        "instruction": task.draw.instruction,
        "supervisor": {
            "first_name": person.first_name,
            "last_name": person.last_name,
            "email": person.email,
            "phone_number": person.phone_number,
        },
        "datetime": NOW.isoformat(),
        "db_version": DB_VERSION,
        "canary_string": CANARY_STRING,
    }


def _write_databases(root: Path, folder: Path, task: PlannedTask, seed: int) -> None:
    collection = ModelCollection.load(
        to_db_home_path=f":memory:task_input-{task.task_id}",
        from_db_home_path=str(root / "data" / "base_dbs"),
        load_apps=get_all_apps(),
    )
    set_local_random_seed(seed)
    _save_supervisor(collection.supervisor, task.person, task.draw.instruction)
    if task.draw.change is not None:
        task.draw.change(collection)
    collection.save(db_home_path=str(folder / "dbs"), format="changes", app_names=get_all_apps())
    collection.close()


def _save_supervisor(supervisor: Any, person: Person, instruction: str) -> None:
    names = ("first_name", "last_name", "email", "phone_number", "birthday", "sex")
    save_rows(supervisor.Supervisor, [{name: getattr(person, name) for name in names}])
    save_rows(supervisor.Task, [{"supervisor_id": 1, "instruction": instruction}])
    passwords = [{"supervisor_id": 1, "account_name": app, "password": word} for app, word in person.passwords.items()]
    save_rows(supervisor.AccountPassword, passwords)
    save_rows(supervisor.PaymentCard, [payment_card(person) | {"supervisor_id": 1}])
    address = {"name": "Home", "country": "United States", "supervisor_id": 1}
    parts = ("street_address", "city", "state", "zip_code")
    save_rows(supervisor.Address, [address | {part: getattr(person, part) for part in parts}])


def _write_ground_truth(folder: Path, task: PlannedTask) -> None:
    template, draw = task.template, task.draw
    solution = template.compiled_solution(draw.public)
    write_json(folder / "answer.json", draw.answer)
    write_json(folder / "public_data.json", draw.public)
    write_json(folder / "private_data.json", draw.private)
    write_json(folder / "required_apps.json", list(template.apps))
    write_json(folder / "walkthrough.json", [asdict(turn) for turn in walkthrough(template.solution_body, draw.public)])
    write_json(folder / "metadata.json", _metadata(task, solution))
    (folder / "evaluation.py").write_text(_CANARY_COMMENT + EVALUATION, encoding="utf-8")
    for name in ("solution.py", "compiled_solution.py"):
        (folder / name).write_text(_CANARY_COMMENT + solution, encoding="utf-8")


def _metadata(task: PlannedTask, solution: str) -> dict[str, Any]:
    return {
        "mode": "full",
        "difficulty": task.template.difficulty,
        "num_apps": len(task.template.apps),
        "num_apis": len(set(re.findall(r"apis\.(\w+\.\w+)", solution))),
        "num_api_calls": 0,
        "num_solution_code_lines": len(solution.strip().splitlines()) - 1,
        "template": task.template.name,
    }
