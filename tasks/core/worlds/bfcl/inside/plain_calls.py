"""Evaluation of plain calls: public methods of the instances, with literals and such calls as arguments.

The package evaluates calls as Python. Code that reads calls only through this module never runs an agent's text.
"""

import ast
from collections.abc import Callable
from typing import Any


class PlainCalls:
    """A replacement for the built-in `eval` for plain calls. Anything else is refused where it is reached."""

    def __init__(self, instance: Callable[[str], Any], undefined: Callable[[str], BaseException]) -> None:
        """Take two functions.

        `instance` returns an instance by name or raises for other names; `undefined` returns the error to raise for a
        call of a bare name.
        """
        self._instance, self._undefined = instance, undefined

    def evaluate(self, expression: str) -> Any:
        """Evaluate an expression.

        Raises NotPlain, SyntaxError, and whatever the two functions and the methods raise.
        """
        return self._value(ast.parse(expression.lstrip(" \t"), "<string>", "eval").body)

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() | complex() as number)):
                return -number
            case ast.List(elts):
                return [self._value(item) for item in elts]
            case ast.Tuple(elts):
                return tuple([self._value(item) for item in elts])
            case ast.Set(elts):
                return {self._value(item) for item in elts}
            case ast.Dict(keys, values) if None not in keys:
                return {self._value(key): self._value(item) for key, item in zip(keys, values, strict=True) if key}
            case ast.Call(ast.Attribute(ast.Name(name), method), arguments, keywords) if not method.startswith("_"):
                called = getattr(self._instance(name), method)
                positional = [self._value(item) for item in arguments]
                return called(*positional, **self._named(keywords))
            case ast.Name(name) | ast.Call(ast.Name(name)):
                raise self._undefined(name)
        raise NotPlain("only calls of the task's functions count")

    def _named(self, keywords: list[ast.keyword]) -> dict[str, Any]:
        names = [keyword.arg for keyword in keywords]
        if None in names or len(set(names)) < len(names):
            raise NotPlain("an argument has no name, or that of another")
        return {str(keyword.arg): self._value(keyword.value) for keyword in keywords}


def not_defined(name: str) -> NameError:
    """Return the error with Python's own message."""
    return NameError(f"name {name!r} is not defined")


class NotPlain(BaseException):
    """The text is more than plain calls. Derived from BaseException because the package catches every Exception."""
