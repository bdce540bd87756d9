"""Fault drill: disturb runs of the smallest pipeline (profile drill), run again, compare with an undisturbed one.

    python tests/benchmarks/fault_drill.py kills [--number 50]   kill -9 at random moments; results/fault_drill.json
    python tests/benchmarks/fault_drill.py stages                kill -9 in every task, while it writes; prints JSON
    python tests/benchmarks/fault_drill.py faults [NAME ...]     each of docs/operations/troubleshooting.md; prints JSON

Every run is `loopline run` with one difference: it is forked from a process that has the imports behind
it, and all runs report to one Prefect server. "whole" means that every artifact has the md5 that dvc.lock says.
"""

import argparse
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml
from result_file import write_result

import flows.runners.pipeline  # noqa: F401 - what a run imports
from flows.cli.app import main as loopline
from flows.dag.stages import STAGES, Stage
from flows.published import artifacts_that_count
from flows.runners.prefect_server import local_server
from tasks.core.lineage.dvc_lock import whole_lock
from tasks.core.processes.running import parent_death_signal
from tasks.core.records.files import read_json
from tasks.core.records.layout import Layout

ROOT = Path(__file__).resolve().parents[2]
Prepare = Callable[[], None]
for_good = ExitStack()


def main() -> None:
    """Parse, warm up, drill."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("drill", choices=("kills", "stages", "faults"))
    parser.add_argument("names", nargs="*", help="of faults; all without")
    parser.add_argument("--number", type=int, default=50, help="of kills")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parsed = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp(prefix="fault_drill"))
    os.chdir(folder)
    try:
        with local_server() as url:
            os.environ["PREFECT_API_URL"] = url
            drill = Drill(folder)
            if parsed.drill == "kills":
                write_result("fault_drill", random_kills(drill, parsed.number, 60 * parsed.minutes), ("dvc", "prefect"))
            else:
                found = stage_kills(drill) if parsed.drill == "stages" else faults(drill, parsed.names)
                print(json.dumps(found, indent=2))
    finally:
        os.chdir(ROOT)
        shutil.rmtree(folder, ignore_errors=True)


class Drill:
    """An untouched project, the result of an undisturbed run of it, and a way to run copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fresh = folder / "fresh"
        make_project(self.fresh)
        self._count = 0
        warm_up()
        project = self.copy()
        begin = time.monotonic()
        code = wait(self.start(project))
        self.seconds = time.monotonic() - begin
        if code:
            raise RuntimeError(f"the undisturbed run failed: {(project / 'run.log').read_text()}")
        self.undisturbed = state_of(project)
        if not whole(project):
            raise RuntimeError("the undisturbed run is not whole")
        locked = yaml.safe_load((project / "dvc.lock").read_text())["stages"]
        self.stages = list(dict.fromkeys(name.partition("@")[0] for name in locked))
        """In the order in which a run comes to them."""

    def copy(self) -> Path:
        self._count += 1
        project = self.folder / f"project{self._count}"
        shutil.copytree(self.fresh, project)
        return project

    def start(self, project: Path, prepare: Prepare = lambda: None) -> int:
        """Fork a run; returns its process id. Its output goes to run.log."""
        if child := os.fork():
            return child
        os.chdir(project)
        os.setsid()
        log = os.open("run.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        parent_death_signal()()
        code = 70
        try:
            prepare()
            code = loopline(["run"])
        except BaseException as error:
            print(repr(error), flush=True)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def recovered(self, project: Path) -> dict[str, Any]:
        """Run the project to its end and compare."""
        code = wait(self.start(project))
        return {
            "next_run": code,
            "same_bytes": code == 0 and state_of(project) == self.undisturbed,
            "whole": code == 0 and whole(project),
            "left_over": [str(path.relative_to(project)) for path in project.rglob("*.tmp")],
            "said": (project / "run.log").read_text().splitlines()[-20:] if code else [],
        }


def make_project(folder: Path) -> None:
    """The code of this checkout with the profile drill, as a DVC project."""
    for name in ("tasks", "flows", "data/base_policies"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dvc.yaml", ".dvcignore", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    for arguments in (("dvc", "init", "--no-scm", "--quiet"), ("flows.cli", "configure", "drill")):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-m", *arguments], cwd=folder, env=environment, check=True, capture_output=True)
    configuration = (ROOT / ".dvc/config").read_text()
    (folder / ".dvc/config").write_text(configuration.replace("[core]\n", "[core]\n    no_scm = true\n"))


def warm_up() -> None:
    """The imports of all stages and of what runs them; nothing that starts threads."""
    for module in ("dvc.repo.reproduce", "mlflow", "peft", "transformers.models.qwen2", "flows.runners.warm_run"):
        importlib.import_module(module)
    for stage in STAGES:
        stage.load()


def wait(process: int) -> int:
    """Exit code; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def state_of(project: Path) -> str:
    """SHA-256 over every artifact's md5, clocks left out, and over what lineage.json says of the run."""
    said = [sorted(artifacts_that_count(whole_lock(project / "dvc.lock")).items()), read_json(Layout(project).lineage)]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def whole(project: Path) -> bool:
    """Whether every artifact has the md5 that dvc.lock says."""
    stages = yaml.safe_load((project / "dvc.lock").read_text())["stages"].values()
    return all(md5_of(project / out["path"]) == out["md5"] for stage in stages for out in stage.get("outs", []))


def md5_of(path: Path) -> str:
    """DVC's md5 of a file or folder."""
    if path.is_file():
        return hashlib.md5(path.read_bytes()).hexdigest()
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix != ".tmp")
    entries = [{"md5": md5_of(file), "relpath": file.relative_to(path).as_posix()} for file in files]
    return hashlib.md5(json.dumps(entries).encode()).hexdigest() + ".dir"


def recorded(project: Path) -> int:
    """How many stages dvc.lock has."""
    lock = project / "dvc.lock"
    return len(yaml.safe_load(lock.read_text())["stages"]) if lock.exists() else 0


def random_kills(drill: Drill, number: int, seconds: float) -> dict[str, Any]:
    """Kill -9 `number` runs, each at a moment drawn uniformly from the length of a run."""
    draw, end = random.Random(0), time.monotonic() + seconds
    kills: list[dict[str, Any]] = []
    while len(kills) < number and time.monotonic() < end:
        project = drill.copy()
        run = drill.start(project)
        time.sleep(draw.uniform(0, drill.seconds))
        family = psutil.Process(run).children(recursive=True)
        os.kill(run, signal.SIGKILL)
        if wait(run) == -signal.SIGKILL:
            done = recorded(project)
            alive = psutil.wait_procs(family, 10)[1]
            kills.append({"recorded": done, "orphans": len(alive), **drill.recovered(project)})
            print(f"{len(kills)} of {number}: {kills[-1]}", file=sys.stderr, flush=True)
        shutil.rmtree(project)
    return {
        "kills": len(kills),
        "identical": sum(kill["same_bytes"] for kill in kills),
        "whole": sum(kill["whole"] for kill in kills),
        "orphaned_processes": sum(kill["orphans"] for kill in kills),
        "left_over_files": sum(len(kill["left_over"]) for kill in kills),
        "undisturbed_seconds": round(drill.seconds, 1),
        "stages_recorded_when_killed": {str(n): c for n, c in sorted(Counter(k["recorded"] for k in kills).items())},
    }


def stage_kills(drill: Drill) -> dict[str, Any]:
    """One project whose run is killed in every task in turn: when its first artifact is written, not yet renamed."""
    project = drill.copy()
    killed = {name: wait(drill.start(project, lambda name=name: dies_in(name))) for name in drill.stages}
    return {"killed": killed, **drill.recovered(project)}


def dies_in(name: str) -> None:
    """Make this process kill itself at the first rename in the body of task `name`."""
    load, replace = Stage.load, Path.replace
    inside: list[str] = []

    def loaded(stage: Stage) -> Any:
        inside[:] = [stage.name]
        return load(stage)

    def replacing(path: Path, target: Any) -> Path:
        if inside == [name] and "data" in path.parts:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(path, target)

    Stage.load = loaded  # type: ignore[method-assign]
    Path.replace = replacing  # type: ignore[method-assign,assignment]


def faults(drill: Drill, names: list[str]) -> dict[str, Any]:
    """Each fault on a copy of its own: exit code and last lines of the disturbed run, then the next one."""
    found = {}
    for name in names or FAULTS:
        project = drill.copy()
        code = FAULTS[name](drill, project)
        said = (project / "run.log").read_text().splitlines()[-4:]
        found[name] = {"disturbed_run": code, "said": said, **drill.recovered(project)}
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    return found


def file_size_limit(drill: Drill, project: Path) -> int:
    """No file may grow over 1.5 MB: what a quota does."""
    return wait(drill.start(project, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))))


def disk_full(drill: Drill, project: Path) -> int:
    """A file system with room for half of the artifacts (needs the right to mount)."""
    megabytes = 2 + sum(path.stat().st_size for path in project.rglob("*") if path.is_file()) // 1_000_000
    with mounted("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", place=project / "data") as place:
        shutil.copytree(drill.fresh / "data", place, dirs_exist_ok=True)
        subprocess.run(["mount", "-o", "remount,size=3m", str(place)], check=True)
        code = wait(drill.start(project))
        rest = project.with_name(f"{project.name}_data")
        shutil.copytree(place, rest)
    shutil.rmtree(project / "data")
    rest.rename(project / "data")
    return code


def read_only_data(drill: Drill, project: Path) -> int:
    """data/ can't be written (needs the right to mount)."""
    place = project / "data"
    with mounted("--bind", str(place), place=place):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        return wait(drill.start(project))


@contextmanager
def mounted(*arguments: str, place: Path) -> Iterator[Path]:
    subprocess.run(["mount", *arguments, str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def corrupt_cache(drill: Drill, project: Path) -> int:
    """A finished run; then one bit flips in the cached file of a checkpoint, and so in the artifact linked to it."""
    code = wait(drill.start(project))
    victims = [path for path in (project / ".dvc/cache/files/md5").rglob("*") if path.is_file()]
    victim = max((path for path in victims if path.stat().st_nlink > 1), key=lambda path: path.stat().st_size)
    victim.chmod(0o644)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    return code


def truncated_lock(drill: Drill, project: Path) -> int:
    """A finished run; then dvc.lock loses its second half, as a machine that dies can leave it."""
    code = wait(drill.start(project))
    lock = project / "dvc.lock"
    lock.write_text(lock.read_text()[: lock.stat().st_size // 2])
    return code


def mlflow_down(drill: Drill, project: Path) -> int:
    """Nobody listens at MLFLOW_TRACKING_URI."""
    return wait(drill.start(project, lambda: os.environ.update(MLFLOW_TRACKING_URI="http://127.0.0.1:9")))


def prefect_down(drill: Drill, project: Path) -> int:
    """Nobody listens at PREFECT_API_URL."""
    return wait(drill.start(project, lambda: use_server("http://127.0.0.1:9/api")))


def use_server(url: str) -> None:
    """For the rest of this process. Prefect reads the environment once, when it is imported."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    for_good.enter_context(temporary_settings({PREFECT_API_URL: url}))


def prefect_dies(drill: Drill, project: Path) -> int:
    """The Prefect server is killed when half of the stages are done."""
    command = [sys.executable, "-c", SERVER]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=drill.folder)
    assert server.stdout is not None
    url, _, process = server.stdout.readline().strip().partition(" ")
    run = drill.start(project, lambda: use_server(url))
    while recorded(project) < 7:
        time.sleep(0.05)
    os.kill(int(process), signal.SIGKILL)
    code = wait(run)
    server.kill()
    server.wait()
    return code


SERVER = """
import psutil, sys
from flows.runners.prefect_server import local_server
with local_server() as url:
    print(url, psutil.Process().children()[0].pid, flush=True)
    import time; time.sleep(600)
"""


def clock_jumps(drill: Drill, project: Path) -> int:
    """Python's clock goes on by a year and back by two, from call to call."""
    return wait(drill.start(project, jump))


def jump() -> None:
    real, calls, year = time.time, iter(range(10**9)), 365.25 * 86400
    time.time = lambda: real() + year * (next(calls) // 20 % 3 - 1)


def two_runners(drill: Drill, project: Path) -> int:
    """`dvc repro` starts in the checkout while the warm flow runs."""
    run = drill.start(project)
    while recorded(project) < 2:
        time.sleep(0.05)
    environment = {**os.environ, "PYTHONPATH": str(project), "PREFECT_API_URL": ""}
    command = [sys.executable, "-m", "dvc", "repro", "--quiet"]
    second = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    code = wait(run)
    with (project / "run.log").open("a") as log:
        log.write(f"dvc repro: {second.returncode}: {second.stderr.strip().splitlines()[-3:]}\n")
    return code


FAULTS: dict[str, Callable[[Drill, Path], int]] = {
    fault.__name__: fault
    for fault in (
        file_size_limit,
        disk_full,
        read_only_data,
        corrupt_cache,
        truncated_lock,
        mlflow_down,
        prefect_down,
        prefect_dies,
        clock_jumps,
        two_runners,
    )
}


if __name__ == "__main__":
    main()
