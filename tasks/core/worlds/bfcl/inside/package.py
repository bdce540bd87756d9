"""The package, imported so that it writes nothing into its own folder."""

import importlib
import inspect
import marshal
import os
import sys
from functools import cache
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
"""Categories of the multi-turn tasks: the four tasks of a scenario, in this order."""
_NEEDED = ("bfcl_eval.model_handler.utils", "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
_ELSEWHERE = ("Memory", "WebSearch")
"""Classes of other categories; some need packages that are not installed."""


def import_package() -> list[str]:
    """Import everything players need, since they cannot open files later. Returns the names of the function classes."""
    with TemporaryDirectory(prefix="bfcl-") as folder:  # the package creates result/ and score/ here
        os.environ["BFCL_PROJECT_ROOT"] = folder
        for module in _NEEDED:
            importlib.import_module(module)
        classes = sys.modules["bfcl_eval.constants.executable_backend_config"].CLASS_FILE_PATH_MAPPING
        names = [name for name in classes if not name.startswith(_ELSEWHERE)]
        for name in names:
            importlib.import_module(classes[name])
    return names


def look_up_quickly(quickly: bool) -> None:
    """Set whether the executor looks up its instances' methods once per class, or again at every step.

    The latter is the package's own way and takes most of a step's time.
    """
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

    multi_turn_utils.inspect = _QuickInspect if quickly else inspect


def forget_instances(model_name: str) -> None:
    """Drop the states of a model's episodes, which the package keeps as a module's globals and would continue from."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

    for name in [name for name in vars(multi_turn_utils) if name.startswith(f"{model_name}_")]:
        delattr(multi_turn_utils, name)


class LongContexts:
    """Values that the package puts into the states of long-context tasks, and that functions may change (cards)."""

    def __init__(self) -> None:
        module = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code.long_context"
        values = [value for name, value in vars(sys.modules[module]).items() if not name.startswith("_")]
        self._originals = [(value, marshal.dumps(value, 2)) for value in values if isinstance(value, dict)]

    def restore(self) -> None:
        """Restore the original values. Required before an episode whose states hold them."""
        for value, original in self._originals:
            if marshal.dumps(value, 2) != original:  # version 2: the bytes depend only on values
                value.clear()
                value.update(marshal.loads(original))


class _QuickInspect:
    """A replacement for the two names of `inspect` that the executor uses. No instance holds a method of another."""

    ismethod = staticmethod(inspect.ismethod)

    @staticmethod
    def getmembers(instance: Any, predicate: object) -> list[tuple[str, Any]]:
        kind: Any = type(instance)
        return [(name, getattr(instance, name)) for name in _methods(kind)]


@cache
def _methods(kind: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(kind, inspect.isfunction)]


def import_evaluation() -> ModuleType:
    """Import the package's evaluation, without what only other categories and models need: that is not installed."""
    for name in ("numpy", "pandas", "bfcl_eval.constants.model_config"):
        sys.modules[name] = ModuleType(name)
    sys.modules["bfcl_eval.constants.model_config"].MODEL_CONFIG_MAPPING = {}  # type: ignore[attr-defined]
    with TemporaryDirectory(prefix="bfcl-") as folder:
        os.environ["BFCL_PROJECT_ROOT"] = folder
        return importlib.import_module("bfcl_eval.eval_checker.eval_runner")
