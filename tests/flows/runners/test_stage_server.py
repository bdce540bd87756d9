"""Stages of a real `dvc repro` share a process: safe to kill, without remains, and never with old code."""

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.flows.tiny_project import run

ROOT = Path(__file__).resolve().parents[3]
KEYS = ("i001", "i002")
BODY = """
import os
import sys
import time
from pathlib import Path

from tasks.core.records.files import ArtifactError


class Held:
    def __init__(self):
        self.pid = os.getpid()

    def close(self):
        with Path("closed").open("a") as closed:
            print(self.pid, file=closed)


def probe(context):
    held, out = context.cache.get("held", 0, Held), Path(f"data/{context.key}")
    print(f"{context.key} says so")
    print(f"{context.key} says so here", file=sys.stderr)
    if (to_do := Path(f"do_{context.key}")).exists():
        exec(to_do.read_text())
    out.write_text(f"{held.pid} {os.environ['DVC_STAGE']}")
"""
DVC_YAML = """
stages:
  first:
    cmd: python -m flows.stage probe i001
    outs: [data/i001]
  second:
    cmd: python -m flows.stage probe i002
    deps: [data/i001]
    outs: [data/i002]
"""
WAIT = "Path('ready').touch(); time.sleep(120)"
SLOW_LAST_WORDS = """
tell = sys.excepthook
sys.excepthook = lambda *what: (time.sleep(2), tell(*what))
"""
AS_PROCESS_1 = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable, "-m")
"""What follows is the first process of a container."""
TICK = """
Path("ready").touch()
for _ in range(1200):
    print(end=".", file=Path("ticks").open("a"))
    time.sleep(0.1)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stage servers are for Linux")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, python_in: Callable[..., Callable[..., object]]) -> Path:
    """Make a project with this checkout's code and a stage that reports on itself."""
    root = tmp_path_factory.mktemp("made") / "project"
    for name in ("tasks", "flows"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tasks/probe.py").write_text(BODY)
    with (root / "flows/dag/stages.py").open("a") as stages:
        print('STAGES += (Stage("probe", "tasks.probe:probe", each="iteration"),)', file=stages)
    (root / "data").mkdir()
    (root / "dvc.yaml").write_text(DVC_YAML)
    python = python_in(root)
    python("-m", "flows.cli", "configure", "default", "--set", "iterations=2")
    python("-m", "dvc", "init", "--no-scm", "--quiet")
    python("-m", "dvc", "config", "core.analytics", "false")
    python("-m", "flows.stage", "version_stages")
    shutil.rmtree(root / ".loopline")
    return root


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "project"))


def start(project: Path, *command: str, **variables: str) -> subprocess.Popen[str]:
    """Start a command, `dvc repro` if none is given."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(project), "PATH": path, "PREFECT_API_URL": "", **variables}
    words = command or (sys.executable, "-m", "dvc", "repro")
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=project, env=environment, stdout=pipe, stderr=pipe, text=True, process_group=0)


def repro(project: Path, **variables: str) -> tuple[int, str, str]:
    """Run `dvc repro`; return its exit code and both output streams."""
    process = start(project, **variables)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def ran(project: Path) -> dict[str, str]:
    """Return, for each finished stage, the process that ran it."""
    words = [path.read_text().split() for path in sorted((project / "data").glob("i00?"))]
    return {stage: pid for pid, stage in words}


def closed(project: Path) -> list[str]:
    """Return the processes that closed their resources, in order."""
    return (project / "closed").read_text().split()


def processes(project: Path) -> dict[str, psutil.Process]:
    """Everything that runs in the project's folder, by what it is."""
    names = {"repro": "repro", "flows.stage": "stage", "flows.runners.stage_server": "server"}
    by_role = {}
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd() == str(project):
                by_role[next((name for word, name in names.items() if word in process.cmdline()), "other")] = process
        except psutil.Error:
            continue
    return by_role


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def left_nothing(project: Path) -> bool:
    """Return whether no process and no socket is left."""
    wait_until(lambda: not processes(project))
    return not list((project / ".loopline/stage_servers").iterdir())


@pytest.mark.whole_runs
def test_the_stages_of_each_checkout_share_a_process_that_ends_with_dvc(project: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(project, tmp_path / "other"))
    beside = start(other)
    code, out, err = repro(project)
    assert code == 0, err
    assert [f"{key} says so" in out for key in KEYS] == [True, True]
    assert [f"{key} says so here" in err for key in KEYS] == [True, True]
    assert beside.wait(60) == 0
    beside.communicate()
    for folder in (project, other):
        assert left_nothing(folder)
        assert list(ran(folder)) == ["first", "second"]
        assert len(set(ran(folder).values())) == 1
        assert closed(folder) == [ran(folder)["first"]]
    assert closed(project) != closed(other)


@pytest.mark.whole_runs
@pytest.mark.parametrize("warm", ["1", "0"])
def test_a_run_that_comes_second_is_refused_between_two_stages_and_the_first_goes_on(project: Path, warm: str) -> None:
    text = (project / "dvc.yaml").read_text()
    waits = "touch ready; until test -e go; do sleep 0.1; done; touch data/between"
    between = f"  between:\n    cmd: {waits}\n    deps: [data/i001]\n    outs: [data/between]\n"
    (project / "dvc.yaml").write_text(text.replace("deps: [data/i001]", "deps: [data/between]") + between)
    first = start(project, LOOPLINE_WARM=warm)
    wait_until((project / "ready").exists)
    second = run(project, "-m", "flows.cli", "run", "--without-prefect")
    (project / "go").touch()
    _, err = first.communicate(timeout=120)
    assert (first.returncode, second.returncode) == (0, 1), err + second.stderr
    assert f"dvc repro, at probe@i001 (process {first.pid}) works in this checkout" in second.stderr


@pytest.mark.whole_runs
@pytest.mark.parametrize("hindrance", ["switched off", "no folder for sockets"])
def test_without_a_server_each_stage_has_its_own_process(project: Path, hindrance: str) -> None:
    off = hindrance == "switched off"
    if not off:
        (project / ".loopline").mkdir()
        (project / ".loopline/stage_servers").touch()
    code, _, err = repro(project, **({"LOOPLINE_WARM": "0"} if off else {}))
    assert code == 0, err
    assert closed(project) == list(ran(project).values())
    assert len(set(closed(project))) == 2


@pytest.mark.whole_runs
def test_the_way_to_a_stage_is_short(project: Path) -> None:
    """At most eight frames of ours, the stage's own among them."""
    way = "import traceback; Path('way').write_text(repr([one.filename for one in traceback.extract_stack()]))"
    (project / "do_i001").write_text(way)
    code, _, err = repro(project)
    assert code == 0, err
    files = [Path(file) for file in ast.literal_eval((project / "way").read_text())]
    ours = [file.relative_to(project).as_posix() for file in files if file.is_relative_to(project)]
    assert ours[-1] == "tasks/probe.py" and len(ours) <= 8, ours


@pytest.mark.whole_runs
def test_a_change_of_code_makes_the_next_stage_start_anew(project: Path) -> None:
    (project / "do_i001").write_text("Path('tasks/score.py').open('a').write('# changed')")
    code, _, err = repro(project)
    assert code == 0, err
    assert left_nothing(project)
    assert closed(project) == list(ran(project).values())
    assert len(set(closed(project))) == 2


@pytest.mark.whole_runs
@pytest.mark.parametrize(
    ("fault", "message", "exit_code"),
    [
        ("raise ArtifactError('broken')", "probe@i002: broken", 1),
        ("sys.exit(7)", "", 7),
        ("1 / 0", "ZeroDivision", 1),
        (
            f"{SLOW_LAST_WORDS}\nraise GeneratorExit('over')",
            "flows.stage: the stage server ended: GeneratorExit: over (its log: ",
            1,
        ),
    ],
)
def test_a_failure_is_the_stages_own(project: Path, fault: str, message: str, exit_code: int) -> None:
    (project / "do_i002").write_text(fault)
    code, _, err = repro(project)
    assert code != 0
    assert message in err
    assert ("Traceback" in err) == (fault == "1 / 0")
    assert f"exited with {exit_code}" in err
    assert left_nothing(project)
    assert closed(project) == [ran(project)["first"]]


@pytest.mark.whole_runs
def test_a_module_that_is_not_there_is_named_and_memory_is_not(project: Path) -> None:
    """As in the copies of `dvc exp run --temp`, which have what git knows."""
    (project / "flows/dag/left_overs.py").unlink()
    code, _, err = repro(project)
    assert code and "ModuleNotFoundError: No module named 'flows.dag.left_overs'" in err and "memory" not in err


@pytest.mark.faults
@pytest.mark.parametrize(
    ("whom", "number"),
    [("repro", signal.SIGKILL), ("stage", signal.SIGKILL), ("server", signal.SIGKILL), ("group", signal.SIGINT)],
)
def test_a_kill_of_any_process_leaves_nothing_and_the_next_run_continues(project: Path, whom: str, number: int) -> None:
    (project / "do_i002").write_text(WAIT)
    process = start(project)
    wait_until((project / "ready").exists)
    if whom == "group":  # as Ctrl-C does; the server is in another group
        os.killpg(process.pid, number)
    else:
        os.kill(processes(project)[whom].pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    wait_until(lambda: not processes(project))
    before = ran(project)
    if whom == "server":
        assert "exited with 137" in err
        assert not (project / "closed").exists()
    else:
        assert closed(project) == list(before.values())
    (project / "do_i002").unlink()
    code, _, err = repro(project)
    assert code == 0, err
    assert left_nothing(project)
    assert ran(project)["first"] == before["first"]
    assert ran(project)["second"] != before["first"]


@pytest.mark.faults
def test_ctrl_z_holds_the_stage_until_it_is_continued_and_a_kill_meanwhile_leaves_nothing(project: Path) -> None:
    (project / "do_i002").write_text(TICK)
    process, ticks = start(project), project / "ticks"
    wait_until((project / "ready").exists)

    def hold() -> int:
        os.killpg(process.pid, signal.SIGTSTP)
        wait_until(lambda: processes(project)["stage"].status() == psutil.STATUS_STOPPED)
        time.sleep(0.5)
        return ticks.stat().st_size

    held = hold()
    time.sleep(1)
    assert ticks.stat().st_size == held
    os.killpg(process.pid, signal.SIGCONT)
    wait_until(lambda: ticks.stat().st_size > held + 5)
    hold()
    process.kill()
    process.communicate(timeout=60)
    assert left_nothing(project)
    assert closed(project) == [ran(project)["first"]]


@pytest.mark.faults
def test_a_run_that_is_a_containers_first_process_ends_with_143_and_goes_on_in_the_next(project: Path) -> None:
    (project / "do_i002").write_text(WAIT)
    process = start(project, *AS_PROCESS_1, "flows.cli", "run", "--without-prefect")
    wait_until((project / "ready").exists)
    (first,) = psutil.Process(process.pid).children()
    assert "NSpid:\t" in (status := Path(f"/proc/{first.pid}/status").read_text())
    assert next(line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")) == "1"
    first.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert list(ran(project)) == ["first"] and not processes(project)
    (project / "do_i002").unlink()
    again = start(project, *AS_PROCESS_1, "flows.cli", "run", "--without-prefect")
    _, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert list(ran(project)) == ["first", "second"]


@pytest.mark.faults
@pytest.mark.parametrize("warm", ["1", "0"])
def test_a_dvc_repro_that_is_a_containers_first_process_runs_its_stages(project: Path, warm: str) -> None:
    process = start(project, *AS_PROCESS_1, "dvc", "repro", LOOPLINE_WARM=warm)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert list(ran(project)) == ["first", "second"]
