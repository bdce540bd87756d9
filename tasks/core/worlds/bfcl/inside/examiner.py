"""An examiner: the package's own conversation loop and evaluation, on an episode's recorded turns.

This is the package unchanged: it evaluates agents' text next to the ground truth, so the process can reach nothing
else.
"""

import contextlib
import io
from typing import Any

from tasks.core.worlds.bfcl.inside.package import LongContexts, import_evaluation, look_up_quickly


class RecitalOver(Exception):  # noqa: N818
    """The package requests more turns than were recorded."""


class Examiner:
    """A server that answers {"examine": id, "turns": texts}."""

    def __init__(self, tasks: dict[str, Any]) -> None:
        self._tasks = tasks
        look_up_quickly(False)
        self._runner = import_evaluation()
        self._handler = _reciting_handler()
        self._long_contexts = LongContexts()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return {"valid": bool, "error": str, "result": the package's record, "messages": the whole conversation}.

        Turns that end before the package's loop does are invalid. Examine each task only once: the package keeps its
        state.
        """
        entry, truth = self._tasks[request["examine"]]
        self._long_contexts.restore()
        handler = self._handler(request["turns"])
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                result, _ = handler.inference_multi_turn_prompting(_copied(entry), False, True)
        except RecitalOver:
            return {"valid": False, "error": "the episode was cut", "result": None, "messages": handler.messages}
        self._long_contexts.restore()  # users of the package evaluate in a separate process
        entry_id = entry["id"]
        category = entry_id.rpartition("_")[0]
        verdict = self._runner._evaluate_single_multi_turn_entry(
            handler, entry_id, result, truth, _copied(entry), "recorded", category
        )
        error = "" if verdict["valid"] else str(verdict["error"]["error_type"])
        return {"valid": verdict["valid"], "error": error, "result": result, "messages": handler.messages}


def _copied(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the entry, because the package writes into the entries that it is given."""
    return {**entry, "question": [[dict(message) for message in turn] for turn in entry["question"]]}


def _reciting_handler() -> Any:
    """Return a model class for the package that recites recorded turns and is shown results like its chat models."""
    from bfcl_eval.model_handler.base_handler import BaseHandler
    from bfcl_eval.model_handler.utils import (
        default_decode_execute_prompting,
        format_execution_results_prompting,
        system_prompt_pre_processing_chat_model,
    )

    class RecitingHandler(BaseHandler):  # type: ignore[misc]
        def __init__(self, turns: list[str]) -> None:
            super().__init__("player", 0.0, "recorded", False)
            self._turns = iter(turns)
            self.messages: list[dict[str, str]] = []

        def decode_execute(self, result: str, has_tool_call_tag: bool) -> list[str]:
            decoded: list[str] = default_decode_execute_prompting(result, has_tool_call_tag)
            return decoded

        def _query_prompting(self, inference_data: dict[str, Any]) -> tuple[str, float]:
            for turn in self._turns:
                return turn, 0.0
            raise RecitalOver

        def _pre_query_processing_prompting(self, test_entry: dict[str, Any]) -> dict[str, Any]:
            functions, test_id = test_entry["function"], test_entry["id"]
            first = test_entry["question"][0]
            test_entry["question"][0] = system_prompt_pre_processing_chat_model(first, functions, test_id)
            return {"message": self.messages}

        def _parse_query_response_prompting(self, api_response: str) -> dict[str, Any]:
            return {"model_responses": api_response, "input_token": 0, "output_token": 0}

        def add_first_turn_message_prompting(
            self, inference_data: dict[str, Any], first_turn_message: list[dict[str, str]]
        ) -> dict[str, Any]:
            self.messages.extend(first_turn_message)
            return inference_data

        _add_next_turn_user_message_prompting = add_first_turn_message_prompting

        def _add_assistant_message_prompting(
            self, inference_data: dict[str, Any], model_response_data: dict[str, Any]
        ) -> dict[str, Any]:
            self.messages.append({"role": "assistant", "content": model_response_data["model_responses"]})
            return inference_data

        def _add_execution_results_prompting(
            self, inference_data: dict[str, Any], execution_results: list[str], model_response_data: dict[str, Any]
        ) -> dict[str, Any]:
            shown = format_execution_results_prompting(inference_data, execution_results, model_response_data)
            self.messages.append({"role": "user", "content": shown})
            return inference_data

    return RecitingHandler
