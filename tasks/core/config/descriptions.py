"""Meanings of the knobs of params.yaml: the text below each field in its class."""

import ast
import inspect
import linecache
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import get_args

from pydantic import BaseModel

LONGEST_COMMENT = 78
"""Letters of a comment in params.yaml."""
_SENTENCE_END = re.compile(r"(?<=[^.]{2})[.;:] |\.$")


def descriptions(section: type[BaseModel]) -> dict[str, str]:
    """Return {field: text below it} of a class and its bases, each text on one line, for the fields that have one."""
    texts: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            texts |= _texts(kind)
    return {name: texts[name] for name in section.model_fields if name in texts}


def first_sentence(text: str) -> str:
    """Return the beginning of a text up to its first full stop, colon or semicolon, without that."""
    return _SENTENCE_END.split(text, maxsplit=1)[0]


def knob_comments(section: BaseModel, prefix: str = "") -> dict[str, str]:
    """Return {dotted name: one short line} of all knobs and sections below `prefix`."""
    texts = descriptions(type(section))
    comments: dict[str, str] = {}
    for name in type(section).model_fields:
        value = getattr(section, name)
        below = isinstance(value, BaseModel)
        text = texts.get(name) or (inspect.getdoc(value) if below else "") or ""
        comments[prefix + name] = _with_choice(first_sentence(" ".join(text.split())), type(section), name)
        if below:
            comments |= knob_comments(value, f"{prefix}{name}.")
    return comments


def _with_choice(sentence: str, section: type[BaseModel], name: str) -> str:
    """Return "`sentence`: one | other" for a knob with few names as values, where that is short; else the sentence."""
    kinds = [vars(kind).get("__annotations__", {}) for kind in reversed(section.__mro__)]
    # The base's annotation has all names where a subclass, the section of one world or engine, has its own.
    values = get_args(next(kind[name] for kind in kinds if name in kind))
    named = [value for value in values if isinstance(value, str)]
    longer = f"{sentence}: {' | '.join(named)}"
    return longer if len(named) == len(values) > 1 and len(longer) <= LONGEST_COMMENT else sentence


@cache
def _texts(kind: type[BaseModel]) -> Mapping[str, str]:
    """Return the texts of the fields that this very class defines; none for a class that was made at run time."""
    try:
        written = _classes(inspect.getfile(kind)).get(kind.__qualname__)
    except OSError:
        return {}
    body = written.body if written else []
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


@cache
def _classes(file: str) -> Mapping[str, ast.ClassDef]:
    """Return the classes that a file writes, by their qualified names; `inspect` would parse it anew for each."""
    return dict(_named(ast.parse("".join(linecache.getlines(file))), ""))


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        below = prefix
        if isinstance(child, ast.ClassDef):
            yield prefix + child.name, child
            below = f"{prefix}{child.name}."
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            below = f"{prefix}{child.name}.<locals>."
        yield from _named(child, below)
