"""A task's solution as an agent would write it: the ground truth's calls, with all arguments by keyword.

Keywords are needed because the package's decoder drops positional arguments.
"""

import ast
import importlib
import inspect
from functools import cache
from typing import Any

NOTHING_TO_CALL = "There is nothing that I can call for this."
TURN_ENDS = "That is done."


def solution(entry: dict[str, Any], truth: list[list[str]]) -> list[str]:
    """Return the assistant's turns: for each user turn, one with all calls and one without calls, which ends it."""
    by_keyword = _ByKeyword(
        {name: parameters for name, (_, parameters) in functions(entry["involved_classes"]).items()}
    )
    turns = []
    for calls in truth:
        if calls:
            turns += [f"[{', '.join(by_keyword.rewritten(call) for call in calls)}]", TURN_ENDS]
        else:
            turns.append(NOTHING_TO_CALL)
    return turns


def functions(classes: list[str]) -> dict[str, tuple[str, list[str]]]:
    """Return the functions that a task offers, by name: each function's class and parameter names."""
    return {method: (name, parameters) for name in classes for method, parameters in _methods(name).items()}


@cache
def _methods(name: str) -> dict[str, list[str]]:
    """Return the parameter names of each public method of a class."""
    from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING

    kind = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)
    public = [pair for pair in inspect.getmembers(kind, inspect.isfunction) if not pair[0].startswith("_")]
    return {method: list(inspect.signature(function).parameters)[1:] for method, function in public}


class _ByKeyword(ast.NodeTransformer):
    def __init__(self, parameters: dict[str, list[str]]) -> None:
        self._parameters = parameters

    def rewritten(self, call: str) -> str:
        return ast.unparse(self.visit(ast.parse(call.strip(), mode="eval")))

    def visit_Call(self, node: ast.Call) -> ast.Call:
        assert isinstance(node.func, ast.Name)
        self.generic_visit(node)
        named = zip(self._parameters[node.func.id], node.args, strict=False)
        node.keywords = [ast.keyword(name, value) for name, value in named] + node.keywords
        node.args = []
        return node
