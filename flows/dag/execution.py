"""Running one stage's body in this process: what both runners share. Knows neither DVC nor Prefect."""

import errno
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from flows.dag.stages import Stage, check_key
from tasks.core.config.params import Params, load_params
from tasks.core.interfaces.stage import StageContext, ThisProcess, Warm, Workers
from tasks.core.processes.parent_death import parent_death_signal
from tasks.core.records.layout import Layout
from tasks.core.transient import Transient

DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)


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


class StageFailed(RuntimeError):  # noqa: N818
    """A stage's body failed in another process with an error whose message says all."""


class StageFailedForNow(StageFailed, Transient):
    """As well, but trying again may help."""


def told(error: Exception) -> StageFailed:
    """An expected `error` as another process is told of it."""
    return (StageFailedForNow if isinstance(error, Transient) else StageFailed)(str(error))


def run_body(stage: Stage, key: str, root: Path, warm: Warm) -> StageContext:
    """Run `stage` for `key` with params.yaml as it is now. Returns the context with all parameters visible.

    Raises ParamsError, UnknownStage (a key that is no key of the stage), and whatever the body raises.
    """
    params = load_params(root / "params.yaml")
    check_key(stage, key, params)
    context = StageContext(Layout(root), DeclaredParams.of(params, stage), key, warm, _workers(stage, params))
    stage.load()(context)
    return StageContext(Layout(root), params, key, warm)


def _workers(stage: Stage, params: Params) -> Workers:
    """Who plays the stage's rollouts."""
    if not stage.plays or params.machines.ray.address is None:
        return ThisProcess()
    from flows.workers.ray_workers import RayWorkers

    return RayWorkers(stage, params.machines.ray)


def is_expected(error: BaseException) -> bool:
    """Whether the message of `error` is all that a user needs.

    That holds for our own exceptions, ValueErrors raised by our code, and a disk that is full or can't be written.
    Everything else is a fault in the program, whose traceback is wanted.
    """
    if type(error).__module__.partition(".")[0] in ("tasks", "flows"):
        return True
    if isinstance(error, OSError) and error.errno in DISK_FAULTS:
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, ValueError) or not frames:
        return False
    raised_in = Path(frames[-1].filename).resolve()
    return Path(__file__).resolve().parents[2] in raised_in.parents and "site-packages" not in raised_in.parts


def may_pass(error: BaseException) -> bool:
    """Whether trying again may help: not where params, artifacts or the disk are at fault."""
    return isinstance(error, Transient) or not is_expected(error)


def stop_cleanly_on_signals() -> None:
    """Make SIGTERM raise SystemExit, so that `finally` blocks close models, engines and agents' processes.

    And on Linux ask for a SIGTERM when the parent dies: killing `dvc repro` must not leave its stage running.
    """
    signal.signal(signal.SIGTERM, _exit)
    parent_death_signal()()
    if sys.platform == "linux" and os.getppid() == 1 and os.environ.get("DVC_STAGE"):
        sys.exit(128 + signal.SIGTERM)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
