"""Running one stage's body in this process: what both runners share. Knows neither DVC nor Prefect."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.dag.stages import Stage, check_key
from tasks.core.config.params import Params, load_params
from tasks.core.interfaces.stage import Executor, ProcessCache, StageContext
from tasks.core.records.layout import Layout

ExecutorFor = Callable[[Stage, Params], Executor]
"""Chooses who plays a stage's rollouts under these parameters."""


class DeclaredParams(Params):
    """Params of which a stage sees only the sections that it declares.

    Reading another one is an error: its change would not change the stage's version, and an old artifact would pass for
    a new one.
    """

    _stage: str = ""
    _hidden: frozenset[str] = frozenset()

    @classmethod
    def of(cls, params: Params, stage: Stage) -> "DeclaredParams":
        """A view of `params` for `stage`. `previous` is always visible: it only maps keys."""
        declared = cls.model_construct(**{name: getattr(params, name) for name in Params.model_fields})
        declared._stage = stage.name
        declared._hidden = frozenset(Params.model_fields) - stage.sections - {"previous"}
        return declared

    def __getattribute__(self, name: str) -> Any:
        if name in Params.model_fields and name in self._hidden:
            raise UndeclaredParams(
                f"stage {self._stage} reads `{name}` of params.yaml, which it does not declare; "
                "add it in flows/dag/stages.py"
            )
        return super().__getattribute__(name)


class UndeclaredParams(RuntimeError):  # noqa: N818
    """A stage read a section of params.yaml that the registry does not list for it."""


def run_body(stage: Stage, key: str, root: Path, cache: ProcessCache, executor_for: ExecutorFor) -> StageContext:
    """Run `stage` for `key` with params.yaml as it is now. Returns the context with all parameters visible.

    Raises ParamsError, UnknownStage (a key that is no key of the stage), and whatever the body raises.
    """
    params = load_params(root / "params.yaml")
    check_key(stage, key, params)
    declared = DeclaredParams.of(params, stage)
    stage.load()(StageContext(Layout(root), declared, key, cache, executor_for(stage, params)))
    return StageContext(Layout(root), params, key, cache)
