"""The package's safety guard with the same answers at a tenth of the cost, which was more than half of a turn's."""

import re
from typing import Any

_WORD = re.compile(r"\w+")


def fast_safety_guard() -> Any:
    """A `SafetyGuard` that parses only code in which something forbidden can be, and patches without importing."""
    from appworld.common import safety_guard

    words = {name for names in safety_guard.DISALLOWED_MODULE_TO_FUNCTION_NAMES.values() for name in names}
    words |= {"import", "__import__", "import_module"}

    class FastSafetyGuard(safety_guard.SafetyGuard):
        def __init__(self) -> None:
            super().__init__()
            self._off = self._functions()
            super().enable()
            self._on = [(module, name, getattr(module, name)) for module, name, _ in self._off]
            super().disable()

        def is_syntax_safe(self, code: str) -> tuple[bool, str]:
            """The package's answer. It refuses imports and calls of forbidden names only: without such a word, yes."""
            if words.isdisjoint(_WORD.findall(code)):
                return True, ""
            answer: tuple[bool, str] = super().is_syntax_safe(code)
            return answer

        def enable(self) -> None:
            for module, name, function in self._on:
                setattr(module, name, function)

        def disable(self) -> None:
            for module, name, function in self._off:
                setattr(module, name, function)

        def _functions(self) -> list[tuple[Any, str, Any]]:
            return [
                (self.module_by_path(path.rpartition(".")[0]), path.rpartition(".")[2], function)
                for path, function in self.name_to_function.items()
            ]

    return FastSafetyGuard()
