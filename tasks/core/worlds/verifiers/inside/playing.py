"""An episode as verifiers' own code runs it, with its three doors to the outside closed: the model, tools, the runtime.

`Env.run_episode`, `Agent`, `Interaction`, stops, interceptors, limits, finalize and scoring are the package's. In place
of a chat program that asks a server, a session in this process asks whoever holds the other end of the channel.
"""

import contextlib
import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

from verifiers.v1 import agent as agents
from verifiers.v1 import graph
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.errors import HarnessError, TaskError, ToolsetError, boundary
from verifiers.v1.rollout import Rollout
from verifiers.v1.task import Task
from verifiers.v1.types import (
    AssistantMessage,
    Messages,
    Request,
    Response,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    content_text,
)
from verifiers.v1.utils.decorators import invoke

from tasks.core.worlds.verifiers.inside.environment import Environment, toolsets
from tasks.core.worlds.verifiers.inside.tools import Tools

MODEL = "policy"
ENDED = "max_turns"
"""Why a rollout stopped whose policy says no more; verifiers' own name for its limit of turns."""

Ask = Callable[[dict[str, Any]], dict[str, Any]]
"""Sends what the policy sees; returns {"text", "calls", "error"} or {"end": true}."""


class NoRuntime:
    """A stand-in for the box in which an environment may run programs. There is none."""

    stopped = False

    async def stop(self) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"it uses its runtime ({name}): no program is run in this world")


class PolicySession:
    """The chat of one rollout: verifiers' null harness, in this process."""

    def __init__(self, rollout: "PlayedRollout", tools: Tools) -> None:
        self._rollout, self._tools = rollout, tools
        self._messages: Messages = _opening(rollout)
        self._shown = 0
        self._failed: set[str] = set()

    async def turn(self, messages: Messages | None = None) -> None:
        """Play until the policy answers without a call, or something stops the rollout."""
        self._messages.extend(messages or [])
        while await self._answered():
            pass

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def _answered(self) -> bool:
        """Let the policy answer once. Returns whether it goes on, after its calls were executed."""
        session, trace = self._rollout._session, self._rollout.trace
        if await session.refused():
            return False
        request, rewrites, stopped = await session.rewrite_request(
            Request(messages=self._messages, tools=self._tools.schemas)
        )
        trace.request_rewrites.extend(rewrites)
        self._messages = list(request.messages)
        turn = graph.prepare_turn(trace, request.messages, request.tools)
        if stopped is not None:
            turn.commit_prompt()
            trace.stop(stopped)
            return False
        said = self._asked()
        if "end" in said:
            trace.stop(ENDED)
            return False
        response, rewrites, stopped = await session.rewrite_response(_response(said, trace.num_turns))
        trace.response_rewrites.extend(rewrites)
        node = turn.commit(response)
        session.consume_prepared(turn.tail)
        stopped = stopped or await session.gate_tool_calls(node)
        self._messages.append(response.message)
        self._shown = len(self._messages)
        if stopped is not None:
            trace.stop(stopped)
            return False
        return await self._executed(response.message, said.get("error"))

    def _asked(self) -> dict[str, Any]:
        new = self._messages[self._shown :]
        schemas = [{"type": "function", "function": tool.model_dump(include=_SCHEMA)} for tool in self._tools.schemas]
        return self._rollout.ask({"messages": [self._wire(message) for message in new], "tools": schemas})

    def _wire(self, message: Any) -> dict[str, Any]:
        """Return a message as the policy is shown it. Raises HarnessError for what no text can show."""
        if isinstance(message.content, list) and any(part.type != "text" for part in message.content):
            raise HarnessError("it shows an image, and the policies of this world read text")
        failed = isinstance(message, ToolMessage) and message.tool_call_id in self._failed
        name = message.name if isinstance(message, ToolMessage) else None
        return {"role": message.role, "content": content_text(message.content), "name": name, "failed": failed}

    async def _executed(self, message: AssistantMessage, error: str | None) -> bool:
        self._failed = set()
        if error is not None:
            self._messages.append(UserMessage(content=f"error: {error}; resend the call with valid JSON"))
        for call in message.tool_calls or []:
            answer, failed = await self._executed_call(call)
            self._messages.append(answer)
            if failed:
                self._failed.add(call.id)
        return bool(message.tool_calls) or error is not None

    async def _executed_call(self, call: ToolCall) -> tuple[ToolMessage, bool]:
        session = self._rollout._session
        if session.request_interceptors or session.request_stops:
            decision = await session.decide_tool(call.id, call.name, json.loads(call.arguments))
            if decision["action"] == "deny":
                return ToolMessage.model_validate(decision["message"]), False
        return await self._tools.call(call)


_SCHEMA = {"name", "description", "parameters"}


class PlayedRollout(Rollout):
    """verifiers' rollout in this process: no runtime, no server, no chat program."""

    environment: Environment
    ask: Ask
    played = 0

    async def open(self) -> bool:
        """Set the task, its tools and the policy's session up. Returns whether the exchange can proceed."""
        self._opened, self.runtime = True, NoRuntime()
        type(self).played += 1
        try:
            if type(self).played > 1:
                raise HarnessError("it plays more than one conversation in an episode, and here an episode is one")
            async with boundary(TaskError, "task setup"):
                await invoke(self.task.setup, {"trace": self.trace, "runtime": self.runtime})
            async with boundary(ToolsetError, "its tools"):
                tools = Tools(toolsets(self.environment, self.task), self.trace)
                await tools.start()
            self._harness_session = PolicySession(self, tools)
        except Exception as error:
            self.fail(error)
            return False
        return not self._session.stopped


async def played(environment: Environment, task: Task, ask: Ask) -> dict[str, Any]:
    """Play one episode. Returns {"reward", "rewards", "stop"}, or {"fault": text, "error": class} of whatever broke."""
    rollout = type("Rollout", (PlayedRollout,), {"environment": environment, "ask": staticmethod(ask), "played": 0})
    agents.Rollout = rollout
    context = ModelContext(model=MODEL, client=EvalClientConfig())
    await environment.env.start()
    try:
        episode = await environment.env.run_episode(task, context)
    finally:
        with contextlib.suppress(Exception):
            await environment.env.stop()
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if errors:
        return {"fault": f"{errors[0].type}: {' '.join(errors[0].message.split())}"[:1000], "error": errors[0].type}
    if not episode.ok:
        return {"fault": "not ok"}
    return _verdict(episode.traces[-1])


def _verdict(trace: Any) -> dict[str, Any]:
    if unscored := [name for name, reward in trace.rewards.items() if reward is None]:
        return {"fault": f"its rubric gave no {unscored[0]}"}
    if not trace.rewards:
        return {"fault": "its rubric has no reward"}
    rewards = {name: reward.value for name, reward in trace.rewards.items()}
    if wrong := [name for name, value in rewards.items() if not math.isfinite(value)]:
        return {"fault": f"its rubric's {wrong[0]} is {rewards[wrong[0]]}"}
    return {"reward": float(trace.reward), "rewards": rewards, "stop": trace.stop_condition or ""}


def _opening(rollout: PlayedRollout) -> Messages:
    system, prompt = rollout.harness.resolve_prompt(rollout.trace.task.data)
    opening: Messages = [] if system is None else [SystemMessage(content=system)]
    if isinstance(prompt, str):
        return [*opening, UserMessage(content=prompt)]
    return [*opening, *(prompt or [])]


def _response(said: dict[str, Any], number: int) -> Response:
    calls = [
        ToolCall(id=f"{number}_{call['id']}", name=call["name"], arguments=json.dumps(call["arguments"]))
        for call in said["calls"]
    ]
    message = AssistantMessage(content=said["text"], tool_calls=calls or None)
    reason = "tool_calls" if calls else "stop"
    return Response(id=f"turn-{number}", created=0, model=MODEL, message=message, finish_reason=reason)
