"""Labels a task's tests by really playing it: doing nothing, by the oracle, and with a side effect after the oracle.

Through the engine's own APIs, databases and test tracker, but without the agent's shell and the state saved after
every step, which would be most of the time. The tests play a task of every template in the whole engine too.
"""

import contextlib
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

from appworld.apps.api_lib import set_local_random_seed
from appworld.collections.apis import ApiCollection
from appworld.collections.models import ModelCollection, ModelCollectionPair
from appworld.evaluator import TestTracker
from appworld.task import Task

from .writing import write_json

_ORACLE_SEED = 100  # the engine's own default


class UnsoundTask(Exception):  # noqa: N818
    """An authored task that its oracle does not solve, or that less or more than it solves. A bug of the template."""


def calibrate_task(root: Path, task_id: str) -> None:
    """Write `test_data.json` and the number of API calls. Clocks must stand at the task's time. Raises UnsoundTask."""
    folder = root / "data" / "tasks" / task_id / "ground_truth"
    write_json(folder / "test_data.json", None)
    task = Task.load(task_id, load_ground_truth=True)
    states = _load_states(task)
    idle = _evaluate(task, folder, states)
    apis, requester = _play_oracle(task, folder, states)
    calls = len(requester.request_tracker.requests)
    solved = _evaluate(task, folder, states)
    _write_surplus_note(apis)
    _require_sound(task_id, idle, solved, spoilt=_evaluate(task, folder, states))
    write_json(folder / "test_data.json", TestTracker.prepare_test_data(solved.passes, idle.passes))
    metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    write_json(folder / "metadata.json", metadata | {"num_api_calls": calls})
    requester.request_tracker.reset()
    states.end.close()
    states.start.close()


def _load_states(task: Any) -> Any:
    end_path = f":memory:task_output-{task.id}"
    start = task.model_collection
    end = ModelCollection.load(end_path, task.models_from_db_home_path, load_apps=task.allowed_apps)
    return ModelCollectionPair(task.models_to_db_home_path, start, end_path, end)


def _play_oracle(task: Any, folder: Path, states: Any) -> Any:
    set_local_random_seed(_ORACLE_SEED)
    apis, requester = ApiCollection.load(
        states.end_db_home_path, task.models_from_db_home_path, load_apps=task.allowed_apps
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            _module(folder / "compiled_solution.py").solution(apis, requester)
    except Exception as error:
        raise UnsoundTask(f"{task.id}: the oracle failed: {error}") from error
    return apis, requester


def _write_surplus_note(apis: Any) -> None:
    """The side effect: a note that no task asks for."""
    passwords = {one["account_name"]: one["password"] for one in apis.supervisor.show_account_passwords()}
    email = apis.supervisor.show_profile()["email"]
    login = apis.simple_note.login(username=email, password=passwords["simple_note"])
    apis.simple_note.create_note(access_token=login["access_token"], title="surplus", content="surplus")


def _evaluate(task: Any, folder: Path, states: Any) -> Any:
    states.end.clear_ids_record_hashes()
    tracker = TestTracker(test_data=None, difficulty=task.ground_truth.metadata["difficulty"])
    _module(folder / "evaluation.py").evaluate(
        test=tracker,
        public_data=task.ground_truth.public_data,
        private_data=task.ground_truth.private_data,
        main_user=states.start.admin.MainUser.find_one(**task.supervisor),
        models=states,
        ground_truth_answer=task.ground_truth.answer,
    )
    return tracker


def _module(path: Path) -> Any:
    """Import by path: the engine imports `evaluation` by its bare name, which finds the first one on sys.path."""
    spec = importlib.util.spec_from_file_location(f"{path.parents[1].name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _require_sound(task_id: str, idle: Any, solved: Any, spoilt: Any) -> None:
    if solved.failures:
        traces = "\n".join(failure["requirement"] + "\n" + failure["trace"] for failure in solved.failures)
        raise UnsoundTask(f"{task_id}: the oracle fails: {traces}")
    if not idle.failures:
        raise UnsoundTask(f"{task_id}: doing nothing passes every test")
    if not spoilt.failures:
        raise UnsoundTask(f"{task_id}: a note that nobody asked for goes unnoticed")
