"""The package's own runner and evaluation, for the tests: run by τ²-bench's interpreter, in the repository's root.

    PYTHON -m tests.core.worlds.tau2.official < EPISODES > VERDICTS

A line of EPISODES: {"task_id", "messages": [[[name, arguments], ...], ...]}. A line of VERDICTS: {"reward", "ending",
"said": the environment's answers}. Each episode has a process of its own, since the package's share a phone's VPN.
Nothing of the package is replaced but two things: ids of new bills (see `inside.package`), and a check that no two
tools have one name, which builds 43 schemas and is made once.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from tasks.core.worlds.tau2.inside.package import Domain


def main() -> None:
    telecom = Domain()
    from tau2.agent.llm_agent import LLMSoloAgent
    from tau2.data_model.message import AssistantMessage, ToolCall
    from tau2.domains.telecom.environment import get_environment, get_tasks
    from tau2.environment.environment import Environment
    from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation, registry
    from tau2.orchestrator.orchestrator import Orchestrator
    from tau2.user.user_simulator import DummyUser

    Environment.validate_solo_mode = lambda self: None

    class Reciter(LLMSoloAgent):  # type: ignore[misc]
        """The package's agent, with a script in place of the model."""

        script: Any = iter(())

        def generate_next_message(self, message: Any, state: Any) -> Any:
            calls = next(self.script)
            said = [ToolCall(id=f"{id(calls)}_{n}", name=name, arguments=args) for n, (name, args) in enumerate(calls)]
            if not said:
                raise ValueError("LLMSoloAgent only supports tool calls.")
            answer = AssistantMessage(role="assistant", tool_calls=said, cost=0.0)
            return self._check_if_stop_toolcall(answer), state

    def constructed(solo_mode: bool = False) -> Any:
        telecom._bill_ids.restart()
        return get_environment(solo_mode=solo_mode)

    registry._domains["telecom"] = constructed
    tasks = {task.id: task for task in get_tasks(None)}
    tools = list(telecom.tools)

    def play(line: str) -> None:
        episode = json.loads(line)
        task = tasks[episode["task_id"]]
        agent = Reciter(list(tools), telecom.policy, task)
        agent.script = iter(episode["messages"])
        environment = constructed(solo_mode=True)
        runner = Orchestrator(
            "telecom", agent, DummyUser(), environment, task, max_steps=200, max_errors=10, solo_mode=True
        )
        simulation = runner.run()
        try:
            reward = evaluate_simulation(simulation, task, EvaluationType.ALL, True, "telecom").reward
        except Exception as error:
            reward = f"{type(error).__name__}: {error}"
        said = [message.content for message in simulation.messages if message.role == "tool"]
        print(json.dumps({"reward": reward, "ending": simulation.termination_reason.value, "said": said}), flush=True)

    for line in sys.stdin:
        in_a_process_of_its_own(play, line)


def in_a_process_of_its_own(play: Callable[[str], None], line: str) -> None:
    """Play an episode in a fork. Raises RuntimeError where it fails."""
    if not (child := os.fork()):
        try:
            play(line)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"an episode failed: {line}")


main()
