"""A judge: lists and describes tasks, recites solutions, and runs the package's own evaluation of an episode."""

from functools import lru_cache
from typing import Any

from tasks.core.worlds.tau2.inside.package import Domain

_KNOWN = 4096
AGENT_STOP = "agent_stop"
_DATABASE = "leaves the databases as the solution does"


class Judge:
    """Answers {"list": true}, {"about": true}, {"describe": id}, {"solve": id}, and with "messages" and "ending" (a
    reason) {"judge": id} and {"record": id}."""

    def __init__(self, domain: Domain, rows: dict[str, dict[str, Any]], splits: dict[str, list[str]]) -> None:
        from tau2.evaluator import evaluator

        self._domain, self._rows, self._splits = domain, rows, splits
        evaluator.registry._domains[domain.name] = domain.environment
        self._task = lru_cache(_KNOWN)(self._validated)
        self._schemas = [tool.openai_schema for tool in self._agent(self._task(next(iter(rows)))).tools]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, or {"fault": text}."""
        try:
            match request:
                case {"describe": task_id}:
                    return self._described(task_id)
                case {"solve": task_id}:
                    wanted = self._rows[task_id]["evaluation_criteria"]
                    calls = [{"requestor": "assistant", **action} for action in wanted["actions"] or []]
                    return {"calls": calls, "tells": wanted.get("communicate_info") or []}
                case {"about": True}:
                    return {"policy": self._domain.policy}
                case {"record": task_id, "messages": messages, "ending": ending}:
                    return self.recorded(task_id, messages, ending)
                case {"judge": task_id, "messages": messages, "ending": ending}:
                    return self.judged(task_id, messages, ending)
            return {"tasks": [_listed(row) for row in self._rows.values()], "splits": self._splits}
        except Exception as error:
            return {"fault": f"{type(error).__name__}: {error}"}

    def judged(self, task_id: str, messages: list[dict[str, Any]], ending: str) -> dict[str, Any]:
        """Return {"reward": float, "checks": [[requirement, whether it holds]], "note": str}.

        Where the package raises, as it does where a call destroyed the phone's settings, nothing holds.
        """
        task = self._task(task_id)
        info = self._evaluated(_simulation(task_id, messages, ending), task)
        if info.reward_basis is None:
            return {"reward": info.reward, "checks": _unmet(task), "note": info.info["note"]}
        return {"reward": info.reward, "checks": _checks(info), "note": ""}

    def recorded(self, task_id: str, messages: list[dict[str, Any]], ending: str) -> dict[str, Any]:
        """Return the task and the simulation with its verdict, as the package's results file has them."""
        task, simulation = self._task(task_id), _simulation(task_id, messages, ending)
        simulation.reward_info = self._evaluated(simulation, task)
        return {"task": task.model_dump(mode="json"), "simulation": simulation.model_dump(mode="json")}

    def _evaluated(self, simulation: Any, task: Any) -> Any:
        from tau2.data_model.simulation import RewardInfo
        from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation

        try:
            return evaluate_simulation(simulation, task, EvaluationType.ALL, self._domain.solo, self._domain.name)
        except Exception as error:
            note = {"note": f"{type(error).__name__}: {error}"[:1000]}
            return RewardInfo(reward=0.0, reward_basis=None, info=note)

    def _described(self, task_id: str) -> dict[str, Any]:
        task = self._task(task_id)
        if self._domain.solo and not task.ticket:
            return {"fault": f"{task_id} has no ticket"}
        return {
            "system": self._agent(task).system_prompt,
            "ticket": task.ticket or "",
            "tools": self._schemas,
            "initial_state": self._rows[task_id].get("initial_state"),
            "user": None if self._domain.solo else self._user(task),
        }

    def _agent(self, task: Any) -> Any:
        """Return the package's agent, with its tools and its system prompt."""
        from tau2.agent.llm_agent import LLMAgent, LLMSoloAgent

        tools, policy = list(self._domain.tools), self._domain.policy
        return LLMSoloAgent(tools, policy, task) if self._domain.solo else LLMAgent(tools, policy)

    def _user(self, task: Any) -> dict[str, Any]:
        """Return what the package's simulated user of a task has: prompt, tools; and its scenario, for a script."""
        from tau2.user.user_simulator import UserSimulator

        tools = self._domain.user_tools
        return {
            "system": UserSimulator(tools, str(task.user_scenario)).system_prompt,
            "tools": [tool.openai_schema for tool in tools or ()],
            "scenario": task.user_scenario.instructions.model_dump(),
        }

    def _validated(self, task_id: str) -> Any:
        from tau2.data_model.tasks import Task

        return Task.model_validate(self._rows[task_id])


def _simulation(task_id: str, messages: list[dict[str, Any]], ending: str) -> Any:
    """Return the record that the official runner would have made of an episode."""
    from tau2.data_model.message import AssistantMessage, ToolMessage, UserMessage
    from tau2.data_model.simulation import SimulationRun

    kinds = {"assistant": AssistantMessage, "tool": ToolMessage, "user": UserMessage}
    said = [kinds[message["role"]](**message) for message in messages]
    if ending == AGENT_STOP:
        said.append(AssistantMessage(role="assistant", content="###STOP###"))
    return SimulationRun(
        id="", task_id=task_id, start_time="", end_time="", duration=0.0, termination_reason=ending, messages=said
    )


def _checks(info: Any) -> list[list[Any]]:
    """Return the requirements that make the reward, and whether each is met."""
    basis = {kind.value for kind in info.reward_basis}
    return [
        *([_DATABASE, info.db_check.db_match] for _ in basis & {"DB"}),
        *([_requirement(one.env_assertion), one.met] for one in _based(basis, "ENV_ASSERTION", info.env_assertions)),
        *([f"calls {one.action.name}", one.action_match] for one in _based(basis, "ACTION", info.action_checks)),
        *([f"tells {one.info}", one.met] for one in _based(basis, "COMMUNICATE", info.communicate_checks)),
    ]


def _unmet(task: Any) -> list[list[Any]]:
    """Return the same requirements, none of them met."""
    criteria = task.evaluation_criteria
    basis = {kind.value for kind in criteria.reward_basis}
    return [
        *([_DATABASE, False] for _ in basis & {"DB"}),
        *([_requirement(one), False] for one in _based(basis, "ENV_ASSERTION", criteria.env_assertions)),
        *([f"calls {one.name}", False] for one in _based(basis, "ACTION", criteria.actions)),
        *([f"tells {told}", False] for told in _based(basis, "COMMUNICATE", criteria.communicate_info)),
    ]


def _based(basis: set[str], kind: str, found: list[Any] | None) -> list[Any]:
    return (found or []) if kind in basis else []


def _requirement(assertion: Any) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in assertion.arguments.items())
    return f"{assertion.func_name}({arguments}) is {assertion.assert_value}"


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "ticket": row.get("ticket") or "",
        "reason": row["user_scenario"]["instructions"]["reason_for_call"],
    }
