"""DVC's reproduce loop with the stage bodies run in this process: DVC decides what runs and records what came out.

DVC's private seams are used here and in lock_file.py alone: the arguments `repro_fn` of `Repo.reproduce` and
`_wait_for_lock` of `Repo`; `dvc.stage.run.cmd_run`, which starts a stage's command; and `dvc.dvcfile.modify_yaml`,
which rewrites dvc.lock after every stage. tests/flows/dag/test_dvc_seam.py is the contract test to run before DVC is
upgraded.
"""

import json
import logging
import os
import shlex
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from flows.dag.lock_file import quick_lock_file
from flows.dag.version_stages import are_of_another_time
from tasks.core.config.params import ParamsError, read_yaml
from tasks.core.records.layout import Layout

Outcome = Literal["up to date", "from cache", "run"]

COMMAND = ("python", "-m", "flows.stage")
_WRITING_S = 2.0
"""A live writer of the run cache needs less for an entry, and a run that follows a kill has not got so far."""


class PipelineFailed(RuntimeError):  # noqa: N818
    """A stage failed, and `__cause__` is why; or DVC could not read or lock the project, as the message says."""


class StageRunner(ABC):
    """The part of `reproduce` that is not DVC's: what happens to a stage that DVC comes to."""

    iteration_by_iteration = False
    """Whether an iteration has to end before the next begins. Then `prepare` may start work for later stages."""

    @abstractmethod
    def run(self, name: str, key: str) -> None:
        """Run a stage that DVC finds changed; "" is the key of a stage that runs once. Raises whatever it raises."""

    @abstractmethod
    def attempt(self, stage: str, key: str, attempt: Callable[[], Outcome]) -> None:
        """Let DVC bring a stage up to date by calling `attempt`, perhaps again if that fails."""

    def prepare(  # noqa: B027 - most runners have nothing to prepare
        self, name: str, key: str, is_due: Callable[[str], bool]
    ) -> None:
        """Start other work before `run`; `is_due` says whether DVC would run a stage, by its name in DVC, now."""


def reproduce(root: Path, targets: Sequence[str], runner: StageRunner) -> dict[str, Outcome]:
    """Do `dvc repro TARGETS` at `root` ([]: everything). Return what became of each stage, by DVC's name ("score@dev").

    Raises PipelineFailed. dvc.lock holds every stage that was done before the failure.
    """
    from dvc.exceptions import DvcException, ReproductionError
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.WARNING)
    outcomes: dict[str, Outcome] = {}
    ran: set[str] = set()

    at_work: list[str] = []

    def body_of(stage: Any, name: str, key: str) -> None:
        at_work[:] = [stage.addressing]
        runner.prepare(name, key, lambda other: other in planned and _is_changed(stage.repo, other))
        runner.run(name, key)
        ran.add(stage.addressing)

    try:
        # Waiting: else `dvc status` beside a run ends it, which gets its lock back after each stage.
        with Repo(str(root), _wait_for_lock=True) as repo, _bodies_in_process(body_of), quick_lock_file():
            _drop_broken_rwlock(repo)
            _drop_half_entries(repo)
            planned = by_iteration(repo, targets) if runner.iteration_by_iteration else []
            repo.reproduce(
                targets=planned or list(targets) or None,
                single_item=bool(planned),
                repro_fn=_repro_fn(outcomes, ran, runner),
            )
    except (KeyboardInterrupt, SystemExit):
        print(stopped_at(*at_work), file=sys.stderr)
        raise
    except ReproductionError as error:
        raise PipelineFailed(str(error)) from (error.__cause__ or error)
    except DvcException as error:
        raise PipelineFailed(_fault_of_file(root, error) or str(error)) from None
    return outcomes


def stopped_at(stage: str = "the start") -> str:
    """Return the line of a run that a signal ends."""
    return f"stopped at {stage}; the same command goes on"


def summary(outcomes: Mapping[str, Outcome]) -> str:
    """One line: how many stages ran, came from the run cache, or were up to date."""
    counts = Counter(outcomes.values())
    if set(counts) <= {"up to date"}:
        return f"all {len(outcomes)} stages are up to date"
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("run", "from cache", "up to date"))


def _fault_of_file(root: Path, error: Exception) -> str | None:
    """Return file, line and fault where `error` is of a YAML file that is none; DVC names the file alone."""
    if (path := getattr(error, "path", None)) is not None:
        try:
            read_yaml(root / path)
        except ParamsError as fault:
            return str(fault)
    return None


def by_iteration(repo: Any, targets: Sequence[str]) -> list[str]:
    """Return all stages that `targets` need, by DVC's names, each iteration's before those of the next.

    DVC's own order is as right, but asks for rollouts as early as it can, which leaves no update to play them during.
    """
    from dvc.repo.reproduce import collect_stages, get_active_graph, plan_repro
    from networkx import lexicographical_topological_sort

    graph = get_active_graph(repo.index.graph)
    needed = plan_repro(graph, collect_stages(repo, targets or ["dvc.yaml"]))
    places = {stage.addressing: place for place, stage in enumerate(repo.index.stages)}

    def rank(stage: Any) -> tuple[str, int]:
        _, key = stage_of_command(str(stage.cmd)) or ("", "")
        return key, places[stage.addressing]

    ordered = lexicographical_topological_sort(graph.subgraph(needed).reverse(), key=rank)
    return [stage.addressing for stage in ordered]


def _is_changed(repo: Any, target: str) -> bool:
    """Return whether DVC would run a stage now. For use in a stage's body, during which DVC holds no lock."""
    with repo.lock:
        return bool(repo.stage.get_target(target).changed())


def stage_of_command(command: str) -> tuple[str, str] | None:
    """(name, key) of `python -m flows.stage NAME [KEY]`; None for any other command."""
    words = tuple(shlex.split(command))
    if words[:3] != COMMAND or len(words) not in (4, 5):
        return None
    return words[3], words[4] if len(words) == 5 else ""


def _repro_fn(outcomes: dict[str, Outcome], ran: set[str], runner: StageRunner) -> Callable[..., Any]:
    from dvc.repo.reproduce import _reproduce_stage

    def repro_fn(stage: Any, **settings: Any) -> Any:
        recorded, forced = None, dict[str, Any]()

        def attempt() -> Outcome:
            nonlocal recorded
            recorded = _reproduce_stage(stage, **settings | forced)
            done: Outcome = "run" if stage.addressing in ran else "from cache"
            outcomes[stage.addressing] = "up to date" if recorded is None else done
            return outcomes[stage.addressing]

        name, key = stage_of_command(str(stage.cmd)) or (stage.addressing, "")
        if name == "version_stages" and are_of_another_time(Layout(Path(stage.repo.root_dir))):
            forced["force"] = True
        runner.attempt(name, key, attempt)
        return recorded

    return repro_fn


def cache_folder(root: Path) -> Path:
    """Return the folder of DVC's cache of this project, by its configuration."""
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        return Path(repo.cache.local.path)


def _drop_broken_rwlock(repo: Any) -> None:
    """Drop what a kill left of .dvc/tmp/rwlock, with which no run would start again.

    DVC writes it in place, so it may be half a file. And DVC takes whoever has the pid of a holder for the holder: in a
    container that is process 1, and in the next one, too.
    """
    from dvc.lock import make_lock

    path = Path(repo.tmp_dir) / "rwlock"
    with make_lock(f"{path}.lock", tmp_dir=repo.tmp_dir):
        try:
            holders = [*_holders(json.loads(path.read_text(encoding="utf-8")))]
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError):
            path.unlink()
            return
        if not any(_holds(pid, command, path.stat().st_mtime) for pid, command in holders):
            path.unlink()


def _drop_half_entries(repo: Any) -> None:
    """Drop what a kill left of an entry that DVC was writing to its run cache: DVC would read it as a whole one.

    Not one that has just been written: another checkout that shares the cache may be at it.
    """
    for path in Path(repo.stage_cache.cache_dir).glob("*/*/.*.tmp"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _WRITING_S:
                path.unlink()


def _holders(content: Any) -> Iterator[tuple[int, str]]:
    """Yield (pid, command) of each holder that DVC's file names."""
    for entries in content.values():
        for entry in entries.values():
            for one in entry if isinstance(entry, list) else [entry]:
                yield int(one["pid"]), str(one["cmd"])


def _holds(pid: int, command: str, written_at: float) -> bool:
    """Return whether the process is the one that wrote this into the file: as old as that, and of this command."""
    import psutil

    try:
        process = psutil.Process(pid)
        arguments = command.partition(" ")[2]
        return process.create_time() <= written_at and " ".join(process.cmdline()).endswith(arguments)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


@contextmanager
def _bodies_in_process(run: Callable[[Any, str, str], None]) -> Iterator[None]:
    """Replace DVC's starting of a process for the commands that are stages of ours; other commands stay processes."""
    import dvc.stage.run as seam

    start_process = seam.cmd_run

    def cmd_run(stage: Any, dry: bool = False, run_env: dict[str, str] | None = None) -> None:
        ours = stage_of_command(str(stage.cmd))
        if ours is None or dry:
            start_process(stage, dry=dry, run_env=run_env)
        else:
            with dvc_variables(seam.prepare_kwargs(stage, run_env=run_env)["env"]):
                run(stage, *ours)

    seam.cmd_run = cmd_run
    try:
        yield
    finally:
        seam.cmd_run = start_process


@contextmanager
def dvc_variables(env: Mapping[str, str]) -> Iterator[None]:
    """Take the DVC_* variables of a stage's environment for this process's own."""
    given = {name: value for name, value in env.items() if name.startswith("DVC_")}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
