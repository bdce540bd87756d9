"""Verdicts, by the evaluator processes."""

from dataclasses import dataclass
from typing import Any

from tasks.core.confinement.link import LinkBroken
from tasks.core.confinement.warm_processes import WarmProcess
from tasks.core.interfaces.world import WorldFault
from tasks.core.worlds.appworld.pool.task_data import TaskData


@dataclass(frozen=True)
class Verdict:
    """The official evaluator's answer on the present state."""

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    status: str | None
    """The status with which the agent ended the task: "success", "fail" or None."""
    question: bool
    """The task asks for an answer."""


def verdict_on(process: WarmProcess, task: TaskData, state: bytes, seconds: float) -> Verdict:
    """Evaluate a state (a frame as a world sends it). Raises WorldFault; the process must then be ended."""
    try:
        process.link.send_frame(task.frame + state, seconds=seconds)
        message = process.link.receive(seconds)
    except LinkBroken as error:
        raise WorldFault(f"the evaluation of task {task.task_id} {error}") from error
    if "fault" in message:
        raise WorldFault(f"the evaluation of task {task.task_id} broke: {message['fault']}")
    return _verdict(message)


def _verdict(message: dict[str, Any]) -> Verdict:
    return Verdict(tuple(message["passed"]), tuple(message["failed"]), message["status"], message["question"])
