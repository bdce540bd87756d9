"""Verdicts on worlds' final states, in a process that runs no agent's code and answers no agent's request."""

import importlib.util
from types import ModuleType
from typing import Any, NoReturn

from tasks.core.confinement.inside import frames
from tasks.core.worlds.appworld.inside.episodes.databases import END, START, TaskDatabases


def serve_evaluations(descriptor: int, databases: TaskDatabases) -> NoReturn:
    """Answer two frames, a task and a state of it, with a verdict or a fault, until the peer hangs up."""
    while True:
        task, state = frames.receive(descriptor), frames.receive(descriptor)
        try:
            verdict = evaluate(databases, task, state)
        except Exception as error:
            verdict = {"fault": f"{type(error).__name__}: {error}"}
        frames.send(descriptor, verdict)


def evaluate(databases: TaskDatabases, task: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """{"passed": [...], "failed": [...], "status": str | None, "question": bool} with requirement texts.

    `task`: task_id, datetime, supervisor and changes, as `pool.TaskData` reads them; `state`: changes and hashes.
    Tests that never ran because the state made evaluation.py raise count as failed, as the package's own `success`
    counts them; tests that are missing without an error are a fault (RuntimeError).
    """
    databases.hold(task["datetime"], task["changes"], START, END)
    databases.apply(END, state["changes"])
    return judge(databases, task, state["hashes"])


def judge(databases: TaskDatabases, task: dict[str, Any], hashes: dict[str, dict[str, int]]) -> dict[str, Any]:
    """Run the task's unit tests on the databases as they are now; see `evaluate`."""
    from appworld import evaluator
    from appworld.apps.model_lib import ModelHashHandler
    from appworld.collections.models import ModelCollectionPair
    from appworld.ground_truth import GroundTruth

    evaluator.build_fail_trace = lambda _: ""  # it costs more than the tests, and nobody reads it
    truth = GroundTruth.load(task_id=task["task_id"], mode="minimal")
    for app, counts in hashes.items():
        ModelHashHandler.data[END][app].update(counts)
    models = ModelCollectionPair(START, databases.start, END, databases.end)
    tracker = evaluator.TestTracker(test_data=truth.test_data, difficulty=truth.metadata["difficulty"])
    raised: Exception | None = None
    try:
        _module(f"{truth.loaded_from_directory}/evaluation.py").evaluate(
            test=tracker,
            public_data=truth.public_data,
            private_data=truth.private_data,
            main_user=models.start.admin.MainUser.find_one(**task["supervisor"]),
            models=models,
            ground_truth_answer=truth.answer,
        )
    except Exception as error:
        raised = error
    row = models.end.supervisor.Task.first()
    return {**_verdict(tracker, truth.test_data, raised), "status": row.status, "question": truth.answer is not None}


def _verdict(tracker: Any, test_data: list[dict[str, str]], raised: Exception | None) -> dict[str, Any]:
    passed = [one["requirement"] for one in tracker.passes]
    failed = [one["requirement"] for one in tracker.failures]
    missing = [one["requirement"] for one in test_data if one["requirement"] not in {*passed, *failed}]
    if missing and raised is None:
        raise RuntimeError(f"{len(passed) + len(failed)} of {len(test_data)} tests ran")
    if not test_data:
        raise RuntimeError("the task has no tests")
    return {"passed": passed, "failed": failed + missing, "raised": "" if raised is None else repr(raised)[:500]}


def _module(path: str) -> ModuleType:
    """Imported from its file: by bare name, another evaluation.py may answer in its place."""
    spec = importlib.util.spec_from_file_location("appworld_task_evaluation", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
