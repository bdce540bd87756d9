"""Mistakes of an agent, as probabilities per episode and as changes of its code. Pure."""

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass

GUESSES = {
    "alarm_id": "id", "amount": "total", "body": "content", "content": "text", "debtor_emails": "members",
    "description": "note", "destination_file_path": "destination", "direction": "type", "directory_path": "path",
    "email_addresses": "to", "email_thread_id": "thread_id", "enabled": "is_enabled", "file_path": "path",
    "from_email": "sender", "is_completed": "completed", "is_public": "public", "label": "name", "message": "text",
    "min_created_at": "since", "note_id": "id", "payment_request_id": "request_id", "phone_number": "to",
    "pinned": "is_pinned", "playlist_id": "playlist", "priority": "level", "private": "is_private",
    "product_id": "id", "product_type": "type", "project_id": "project", "quantity": "count", "query": "search",
    "read": "is_read", "receiver_email": "email", "relationship": "relation", "snooze_minutes": "snooze",
    "song_id": "id", "source_file_path": "source", "task_id": "id", "time": "at", "title": "name",
    "transaction_id": "id", "user_email": "email",
}  # fmt: skip
"""A parameter, and what an agent that did not read the document takes it for."""


@dataclass(frozen=True)
class Habits:
    """Probabilities, per episode unless a field says otherwise."""

    guess_documents: float = 0.6
    """Call APIs whose documents it did not read."""
    wrong_guess: float = 0.5
    """Per parameter: guess its name wrongly."""
    email_for_phone: float = 0.3
    """Log in to the phone with the email address."""
    dummy: float = 0.1
    """Try a dummy password."""
    one_page: float = 0.4
    give_up: float = 0.65
    """After an error."""
    claim_success: float = 0.3
    """The share of those who give up that completes the task as if all were done."""
    finish_early: float = 0.06
    chatty: float = 0.3
    """Answer by a sentence."""
    needless_answer: float = 0.12
    assume: float = 0.2
    """Take the first thing that was found for the right one."""
    slip: float = 0.08
    """Per turn: drop a condition or take a wrong value."""
    two_blocks: float = 0.1
    """Per turn: write the next block too, which is not executed."""
    no_completion: float = 0.05
    """Say that all is done without a block of code."""
    thought: float = 0.6
    """Per turn: say what it is for."""


IMPERFECT = Habits()
PERFECT = Habits(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, thought=0.6)

_PAGED = re.compile(r"^(\w+) = all_pages\(([\w.]+)(?:, )?(.*)\)$", re.MULTILINE)


def paged(code: str, one_page: bool) -> str:
    """The code with its calls of `all_pages` written out, or with a call of the first page alone."""
    if one_page:
        return _PAGED.sub(r"\1 = \2(\3)", code)

    def loop(match: re.Match[str]) -> str:
        name, api, arguments = match.groups()
        arguments = f"{arguments}, " if arguments else ""
        return (
            f"{name}, page = [], 0\nwhile True:\n    more = {api}({arguments}page_index=page, page_limit=20)\n"
            f"    if not more:\n        break\n    {name} += more\n    page += 1"
        )

    return _PAGED.sub(loop, code)


def misnamed(code: str, parameters: Collection[str]) -> str:
    """The code with these parameters of APIs guessed wrongly."""
    return "\n".join(
        re.sub(r"(?<=[(,] )(\w+)=|(?<=\()(\w+)=", lambda match: _guess(match, parameters), line)
        if "apis." in line and "api_docs" not in line and ".login(" not in line
        else line
        for line in code.split("\n")
    )


def _guess(match: re.Match[str], parameters: Collection[str]) -> str:
    name = match[1] or match[2]
    return f"{GUESSES[name] if name in parameters else name}="


def first_found(code: str) -> str:
    """The code with the first thing found instead of the one that was looked for."""
    return _changed(code, _FirstFound())


def slipped(code: str) -> str:
    """The code without one condition, or with a truth value reversed; unchanged where it has neither."""
    return _changed(code, _Slip())


def _changed(code: str, change: ast.NodeTransformer) -> str:
    return ast.unparse(ast.fix_missing_locations(change.visit(ast.parse(code))))


class _FirstFound(ast.NodeTransformer):
    """`next(f(x) for x in found if ...)` becomes `f(found[0])`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("next"), [ast.GeneratorExp(element, [ast.comprehension(ast.Name(name), source)])]):
                first = ast.Subscript(source, ast.Constant(0), ast.Load())
                return ast.parse(re.sub(rf"\b{name}\b", ast.unparse(first), ast.unparse(element)), mode="eval").body
        return node


class _Slip(ast.NodeTransformer):
    """The first condition that may go, or else the first truth value."""

    def __init__(self) -> None:
        self._done = False

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        if node.generators[0].ifs and not self._done:
            node.generators[0].ifs, self._done = [], True
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        if isinstance(node.test, ast.BoolOp) and not self._done:
            node.test, self._done = node.test.values[0], True
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool) and not self._done:
            node.value, self._done = ast.Constant(not node.value.value), True
        return node


def chatty(code: str) -> str:
    """The completing code with a sentence for an answer."""
    return re.sub(r"answer=(.+)\)$", r'answer=f"The answer is {\1}.")', code)
