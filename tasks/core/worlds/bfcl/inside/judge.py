"""A judge: describes tasks, solves them, and judges decoded calls with the package's own checker.

The checker executes an agent's calls again, next to the ground truth, and the package would evaluate them as Python.
Here only plain calls are read and anything else is an error, so text that is more than calls gains nothing and sees
nothing, least of all the instances of the ground truth.
"""

from typing import Any

from tasks.core.worlds.bfcl.inside.package import LongContexts, forget_instances
from tasks.core.worlds.bfcl.inside.plain_calls import NotPlain, PlainCalls, not_defined
from tasks.core.worlds.bfcl.inside.solutions import functions, solution

PASSED = ""


class Judge:
    """Answers {"list": true}, {"describe": id}, {"solve": id} and {"judge": id, "turns": calls by turn and step}."""

    def __init__(self, tasks: dict[str, Any]) -> None:
        from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

        self._tasks, self._names, self._judged = tasks, vars(multi_turn_utils), 0
        self._prompts: dict[tuple[str, ...], str] = {}
        self._reachable = ""
        self._calls = PlainCalls(self._instance, not_defined)
        self._long_contexts = LongContexts()
        multi_turn_utils.eval = self._evaluate  # replaces the built-in function
        multi_turn_checker.execute_multi_turn_func_call = self._execute

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, or {"fault": text}."""
        try:
            match request:
                case {"describe": task_id}:
                    return describe(self._tasks[task_id][0], self._prompts)
                case {"solve": task_id}:
                    return {"turns": solution(*self._tasks[task_id])}
                case {"judge": task_id, "turns": turns}:
                    entry, truth = self._tasks[task_id]
                    return {"error": self._error(entry, truth, turns)}
            return {"tasks": [listed(*task) for task in self._tasks.values()]}
        except Exception as error:
            return {"fault": f"{type(error).__name__}: {error}"}

    def _error(self, entry: dict[str, Any], truth: list[list[str]], turns: list[list[list[str]]]) -> str:
        """Return the fault in the turns, or PASSED."""
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

        if len(turns) != len(truth):
            return f"multi_turn:force_terminated: {len(turns)} of the user's {len(truth)} turns were begun"
        if is_long(entry):
            self._long_contexts.restore()
        self._judged += 1
        name = (
            # state lives in globals with this name: a reused name would be judged with its old state
            f"judged_{self._judged}"
        )
        try:
            checked = multi_turn_checker(turns, truth, entry, entry["id"].rpartition("_")[0], name)
        finally:
            forget_instances(name)
        return PASSED if checked["valid"] else f"{checked['error_type']}: {checked['error_message']}"

    def _execute(self, model_name: str, **call: Any) -> Any:
        """Run the package's executor with access to one side's instances only.

        The instances of the agent and of the ground truth are globals of the same module, named by `model_name`. Calls
        of one side cannot reach the other side's instances.
        """
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

        self._reachable = f"{model_name}_eval_"
        return execute_multi_turn_func_call(model_name=model_name, **call)

    def _evaluate(self, expression: str) -> Any:
        try:
            return self._calls.evaluate(expression)
        except NotPlain as error:
            raise NameError(str(error)) from None

    def _instance(self, name: str) -> Any:
        if not name.startswith(self._reachable):
            raise not_defined(name)
        return self._names[name]


def is_long(entry: dict[str, Any]) -> bool:
    """Return whether a task's states are padded with things it does not need."""
    return "long_context" in entry["id"]


def listed(entry: dict[str, Any], truth: list[list[str]]) -> dict[str, Any]:
    """Return a task's entry in the list of tasks."""
    instruction = "\n".join(message["content"] for turn in entry["question"] for message in turn)
    return {
        "id": entry["id"],
        "classes": entry["involved_classes"],
        "instruction": instruction,
        "calls": sum(map(len, truth)),
    }


def describe(entry: dict[str, Any], prompts: dict[tuple[str, ...], str]) -> dict[str, Any]:
    """Return the user's messages turn by turn, after the system prompt, and everything a player needs.

    `prompts` caches system prompts by the names of their functions, because they take most of the time.
    """
    turns = [user_messages(entry, number) for number in range(len(entry["question"]))]
    offered = tuple(function["name"] for function in entry["function"])
    prompt = prompts[offered] = prompts.get(offered) or system_prompt(entry)
    return {
        "turns": [[{"role": "system", "content": prompt}, *turns[0]], *turns[1:]],
        "functions": {function: name for function, (name, _) in functions(entry["involved_classes"]).items()},
        "player": {
            "id": entry["id"],
            "classes": entry["involved_classes"],
            "config": entry["initial_config"],
            "long_context": is_long(entry),
        },
    }


def user_messages(entry: dict[str, Any], number: int) -> list[dict[str, str]]:
    """Return the user's messages at the beginning of a turn; if functions are added there, their announcement."""
    from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING

    late = entry.get("missed_function", {}).get(str(number))
    if late is None:
        return [dict(message) for message in entry["question"][number]]
    content = DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.format(functions=late)
    return [{"role": "user", "content": content}]


def system_prompt(entry: dict[str, Any]) -> str:
    """Return the package's system prompt, which precedes the user's first message."""
    from bfcl_eval.model_handler.utils import system_prompt_pre_processing_chat_model

    first = [{"role": "user", "content": ""}]
    return str(system_prompt_pre_processing_chat_model(first, entry["function"], entry["id"])[0]["content"])
