"""The environment as verifiers' own loaders make it, and what of it cannot be played here, said in one line each."""

import hashlib
import inspect
import itertools
import json
from typing import Any

from verifiers.v1.configs.agent import AgentConfig, agent_config_fields
from verifiers.v1.env import Env
from verifiers.v1.task import Task
from verifiers.v1.types import content_text
from verifiers.v1.utils.compile import resolve_runtime_config, validate_pairing
from verifiers.v1.utils.loaders import default_harness_id, env_config_type, load_environment

_ANSWERS = ("answer", "answers", "ground_truth", "solution")
"""Fields of a task's data that hold what a rubric compares with."""
_NAMES = ("idx", "id", "name", "description")
"""Fields that name a task and say nothing of it."""
_LONGEST_INSTRUCTION = 2000


class Refused(Exception):  # noqa: N818
    """An environment that cannot be played; the message says why in one line."""


class Environment:
    """One environment with its tasks."""

    def __init__(self, taskset: str, settings: dict[str, Any], count: int, max_turns: int) -> None:
        """Load the environment and its tasks; of an endless stream the first `count`. Raises Refused."""
        self.env = _loaded(taskset, settings, max_turns)
        (self.role,) = agent_config_fields(self.env.config)
        self.tasks = _tasks(self.env, taskset, count)
        _refuse_unplayable(self.env, self.role, self.tasks[0])

    def listed(self, solution: str) -> list[list[Any]]:
        """Return row, digest of the content, instruction and solution of every task, from the field called `solution`.

        Raises Refused where there is no such field.
        """
        return [
            [row, content_digest(task), _instruction(task), _solution(task, solution)]
            for row, task in enumerate(self.tasks)
        ]


def content_digest(task: Task) -> str:
    """Return a digest of a task's data without what only names it."""
    data = task.data.model_dump(mode="json", exclude=set(_NAMES))
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _loaded(taskset: str, settings: dict[str, Any], max_turns: int) -> Env[Any]:
    try:
        own_harness = default_harness_id(taskset) == taskset
        config_type = env_config_type(taskset)
        roles = [name for name, field in config_type.model_fields.items() if isinstance(field.default, AgentConfig)]
        if own_harness:
            raise Refused("it brings a program of its own to play it (a Harness), and only chats are played here")
        if len(roles) != 1:
            raise Refused(f"it has the roles {', '.join(roles)}: only environments with one are played here")
        return load_environment(config_type.model_validate(_config(taskset, settings, roles[0], max_turns)))
    except ImportError as error:
        missing = error.name or getattr(error.__cause__, "name", None) or taskset
        raise Refused(
            f"no module {missing!r} in its interpreter: name its package in world.verifiers.packages, or its folder in "
            "world.verifiers.folder"
        ) from None


def _config(taskset: str, settings: dict[str, Any], role: str, max_turns: int) -> dict[str, Any]:
    """Return the environment's settings with a role that is a plain chat in this process."""
    agent = {
        "max_turns": max_turns,
        **settings.get(role, {}),
        "harness": {"id": "null"},
        "runtime": {"type": "subprocess"},
    }
    return {**settings, role: agent, "taskset": {**settings.get("taskset", {}), "id": taskset}}


def _tasks(env: Env[Any], taskset: str, count: int) -> list[Task]:
    stream = iter(env.taskset)
    tasks: list[Task] = []
    while env.taskset.bounded or len(tasks) < count:
        try:
            task = next(stream)
        except StopIteration:
            break
        except Exception as error:
            raise Refused(f"row {len(tasks)} of its dataset: {_one_line(error)}") from None
        _refuse_without_answer(task, len(tasks))
        tasks.append(task)
    if not tasks:
        raise Refused("its dataset is empty")
    return tasks


def _refuse_without_answer(task: Task, row: int) -> None:
    for name in _ANSWERS:
        if name in type(task.data).model_fields and getattr(task.data, name) in (None, "", [], {}):
            raise Refused(f"row {row} of its dataset has no {name}")


def _refuse_unplayable(env: Env[Any], role: str, task: Task) -> None:
    spec = agent_config_fields(env.config)[role]
    try:
        toolsets = _toolsets(env, task)
        validate_pairing(env._harnesses[role], type(task), resolve_runtime_config(spec.runtime, task), tools=toolsets)
    except Exception as error:
        raise Refused(_one_line(error)) from None
    if away := [type(one).__name__ for one in toolsets if one.config.url or one.config.runtime.type != "subprocess"]:
        raise Refused(f"its tools {', '.join(away)} are served elsewhere, and the environment's process has no network")
    if task.plugged_judges():
        raise Refused("a judge of its rubric asks a model, and the environment's process has no network")
    for function in (*task.hooks("reward"), *task.hooks("metric")):
        needs = inspect.signature(function).parameters.get("runtime")
        if needs is not None and needs.default is inspect.Parameter.empty:
            raise Refused(f"{function.__name__} of its rubric runs programs (runtime), and there are none here")


def _toolsets(env: Env[Any], task: Task) -> list[Any]:
    return [*env.taskset.toolsets(env.taskset.config), *task.toolsets(task.config)]


def toolsets(environment: Environment, task: Task) -> list[Any]:
    """Return fresh toolsets of an episode: the taskset's, which rollouts may share, and the task's own."""
    return _toolsets(environment.env, task)


def _instruction(task: Task) -> str:
    text = task.data.prompt_text or task.data.description or task.data.name or "a conversation that the user opens"
    system = content_text(task.data.system_prompt)
    return "".join(itertools.islice(text or system, _LONGEST_INSTRUCTION))


def _solution(task: Task, name: str) -> list[str]:
    if not name:
        return []
    found = getattr(task.data, name, None)
    if not isinstance(found, str | list | tuple):
        raise Refused(f"its tasks' data has no field {name} with turns (world.verifiers.solution)")
    return [found] if isinstance(found, str) else [str(turn) for turn in found]


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
