"""An oracle as a demonstration: its turns, with the task's own values instead of variables. Pure; no database."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Turn:
    """One demonstrated turn."""

    thought: str
    code: str


def walkthrough(solution_body: str, public: Mapping[str, Any]) -> list[Turn]:
    """The turns of a solution, each begun by a comment at the margin, with the public data filled in.

    Choices that depend on the public data alone are made, so that only the code of this task is left. `all_pages` and
    the tokens are left as they are: how an agent pages and logs in is its own affair. Raises ValueError for code
    before the first comment.
    """
    before, *parts = re.split(r"^# (.+)\n", solution_body, flags=re.MULTILINE)
    if before.strip():
        raise ValueError(f"code without a thought: {before.strip()}")
    turns = zip(parts[::2], parts[1::2], strict=True)
    return [Turn(thought, _filled(code, public)) for thought, code in turns]


def _filled(code: str, public: Mapping[str, Any]) -> str:
    tree = _Filling(public).visit(ast.parse(code))
    return ast.unparse(ast.fix_missing_locations(tree))


class _Filling(ast.NodeTransformer):
    """Puts values in the place of names and evaluates what has no names left."""

    def __init__(self, public: Mapping[str, Any]) -> None:
        self._public = public

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self._public:
            return _literal(self._public[node.id])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        keywords: list[ast.keyword] = []
        for one in node.keywords:
            if one.arg is None and isinstance(one.value, ast.Dict):
                pairs = ast.literal_eval(one.value).items()
                keywords += [ast.keyword(name, _literal(value)) for name, value in pairs]
            else:
                keywords.append(one)
        node.keywords = keywords
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        known, value = _evaluated(node.test)
        return (node.body if value else node.orelse) if known else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        known, value = _evaluated(node.test)
        return (node.body if value else node.orelse) if known else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        known, value = _evaluated(node)
        return _literal(value) if known else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return self._folded(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        return self._folded(node)

    def _folded(self, node: ast.expr) -> ast.AST:
        self.generic_visit(node)
        known, value = _evaluated(node)
        return _literal(value) if known else node


def _literal(value: Any) -> ast.expr:
    return ast.parse(repr(value), mode="eval").body


def _evaluated(node: ast.expr) -> tuple[bool, Any]:
    """Whether the expression names nothing, and then its value."""
    if any(isinstance(one, (ast.Name, ast.Call, ast.Attribute)) for one in ast.walk(node)):
        return False, None
    return True, eval(compile(ast.fix_missing_locations(ast.Expression(node)), "constants", "eval"), {})
