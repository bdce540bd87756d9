"""Plays tasks of a root in the whole engine, three ways; run by test_authored_root in AppWorld's interpreter.

Prints one JSON line per task: how many tests it has, which failed when nothing was done, after the oracle, and after
the oracle and a side effect (a note that nobody asked for).
"""

import contextlib
import gc
import io
import json
import sys

from appworld.environment import AppWorld
from appworld.evaluator import evaluate_task

_SIDE_EFFECT = """
surplus_words = {one['account_name']: one['password'] for one in apis.supervisor.show_account_passwords()}
surplus_login = apis.simple_note.login(
    username=apis.supervisor.show_profile()['email'], password=surplus_words['simple_note']
)
apis.simple_note.create_note(access_token=surplus_login['access_token'], title='surplus', content='surplus')
"""


def _failed(world: AppWorld) -> list[str]:
    tracker = evaluate_task(world.task_id, "whole_engine", suppress_errors=True, save_report=False)
    assert len(tracker.passes) + len(tracker.failures) == tracker.num_tests
    return [failure["requirement"] for failure in tracker.failures]


def play(task_id: str) -> dict[str, object]:
    with AppWorld(task_id=task_id, experiment_name="whole_engine", ground_truth_mode="full") as world:
        tests = len(world.task.ground_truth.test_data)
        labelled = {one["requirement"] for one in world.task.ground_truth.test_data if one["label"] == "no_op_fail"}
        idle = _failed(world)
        said = world.execute(world.task.ground_truth.compiled_solution_code + "\nsolution(apis, requester)")
        oracle = _failed(world)
        world.execute(_SIDE_EFFECT)
        return {
            "task_id": task_id,
            "tests": tests,
            "labels_hold": labelled == set(idle),
            "idle": idle,
            "said": said,
            "oracle": oracle,
            "surplus": _failed(world),
        }


for line in sys.argv[1:]:
    gc.freeze()  # IPython collects at every reset, and would look through all that the package loaded
    with contextlib.redirect_stdout(io.StringIO()):
        result = play(line)
    print(json.dumps(result), flush=True)
