"""Evaluation of plain calls: of the instances' public methods, with literals and such calls as arguments.

The package evaluates calls as Python. Whoever reads them by this alone runs no text of an agent's.
"""

import ast
from collections.abc import Callable
from typing import Any


class PlainCalls:
    """Gives what the built-in `eval` does for plain calls. All else in a text is refused where it is reached."""

    def __init__(self, instance: Callable[[str], Any], undefined: Callable[[str], BaseException]) -> None:
        """`instance`: from its name; raises for other names. `undefined`: what to raise for a call of a bare name."""
        self._instance, self._undefined = instance, undefined

    def evaluate(self, expression: str) -> Any:
        """The value. Raises NotPlain, SyntaxError, what the two functions raise and what the methods raise."""
        return self._value(ast.parse(expression.lstrip(" \t"), "<string>", "eval").body)

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() | complex() as number)):
                return -number
            case ast.List(elts):
                return [self._value(one) for one in elts]
            case ast.Tuple(elts):
                return tuple([self._value(one) for one in elts])
            case ast.Set(elts):
                return {self._value(one) for one in elts}
            case ast.Dict(keys, values) if None not in keys:
                return {self._value(key): self._value(one) for key, one in zip(keys, values, strict=True) if key}
            case ast.Call(ast.Attribute(ast.Name(name), method), arguments, keywords) if not method.startswith("_"):
                called = getattr(self._instance(name), method)
                positional = [self._value(one) for one in arguments]
                return called(*positional, **self._named(keywords))
            case ast.Name(name) | ast.Call(ast.Name(name)):
                raise self._undefined(name)
        raise NotPlain("only calls of the task's functions count")

    def _named(self, keywords: list[ast.keyword]) -> dict[str, Any]:
        names = [one.arg for one in keywords]
        if None in names or len(set(names)) < len(names):
            raise NotPlain("an argument has no name, or that of another")
        return {str(one.arg): self._value(one.value) for one in keywords}


def not_defined(name: str) -> NameError:
    """The error, in Python's words."""
    return NameError(f"name {name!r} is not defined")


class NotPlain(BaseException):
    """The text is more than plain calls. The package catches every Exception; this one passes it."""
