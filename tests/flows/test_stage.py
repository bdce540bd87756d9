"""The command `python -m flows.stage` as dvc.yaml and people call it."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from flows.dag.stages import find_stage
from flows.errors import is_expected, may_pass
from tasks.core.engines.vllm.client import EngineUnavailable, ServerLost
from tasks.core.records.files import ArtifactError

Python = Callable[..., CompletedProcess[str]]
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no_such"], 2, "flows.stage: unknown stage 'no_such'; the stages are: version_stages, prepare_world"),
        (["score", "dev"], 2, "flows.stage: score: unknown key 'dev'; it is run for: test_normal, test_challenge"),
        (["update_policy"], 2, "flows.stage: update_policy: a key is missing; it is run for: i001, i002, i003"),
        (["update_policy", "i004"], 2, "flows.stage: update_policy: unknown key 'i004'"),
        (["select_checkpoint", "i001"], 2, "flows.stage: select_checkpoint takes no key, but was given 'i001'"),
        (["filter_advantages", "i001"], 1, "rollouts.parquet: missing"),
    ],
)
def test_bad_calls_are_one_message(arguments: list[str], code: int, message: str, python: Python) -> None:
    done = python("-m", "flows.stage", *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_bad_params_name_file_key_and_rule(project: Path, python: Python) -> None:
    params = project / "params.yaml"
    params.write_text(params.read_text().replace("min_absolute_advantage: 0.01", "min_absolute_advantag: 0.01"))
    done = python("-m", "flows.stage", "version_stages")
    assert done.returncode == 1
    assert (
        "params.yaml: advantages.min_absolute_advantag: no such knob; did you mean advantages.min_absolute_advantage?"
        in done.stderr
    )


def test_starting_imports_the_standard_library_only(python: Python) -> None:
    code = """
import sys
before = set(sys.modules)
import flows.stage
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - sys.stdlib_module_names))
"""
    assert python("-c", code).stdout.strip() == "['flows', 'tasks']"


def test_expected_errors_are_those_our_code_raises() -> None:
    assert is_expected(ArtifactError("x"))
    assert is_expected(caught(lambda: find_stage("x")))
    assert not is_expected(caught(lambda: __import__("json").loads("{")))
    assert not is_expected(caught(lambda: {}["x"]))  # type: ignore[index]


def test_only_errors_that_may_pass_are_retried() -> None:
    assert may_pass(ServerLost("the server at http://node1:8000 is gone"))
    assert is_expected(ServerLost("its message is all there is to say"))
    assert may_pass(caught(lambda: {}["x"]))  # type: ignore[index]
    assert not may_pass(EngineUnavailable("not a vLLM server"))
    assert not may_pass(ArtifactError("x"))


def test_prefect_asks_whether_an_error_may_pass() -> None:
    from prefect.client.schemas.objects import TaskRun
    from prefect.states import Failed

    from flows.runners.prefect_runner import _can_help, stage_task

    task, run = stage_task(find_stage("score"), None), TaskRun(task_key="score", dynamic_key="0")
    assert _can_help(task, run, Failed(data=ServerLost("x")))  # type: ignore[arg-type]
    assert not _can_help(task, run, Failed(data=ArtifactError("x")))  # type: ignore[arg-type]


def caught(action: Callable[[], object]) -> Exception:
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


SLEEPER = """
    import time
    from flows.signals import stop_cleanly_on_signals

    stop_cleanly_on_signals()
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("closed", flush=True)
"""


def test_sigterm_runs_what_closes_engines(project: Path) -> None:
    process = start(SLEEPER)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.read() == "closed\n"
    assert process.wait(10) == 128 + signal.SIGTERM


DROPPER = """
    import signal, time
    from flows.signals import stop_cleanly_on_signals

    class Dropped:
        def __del__(self):
            signal.raise_signal({number})

    stop_cleanly_on_signals()
    print("ready", flush=True)
    try:
        Dropped()
        time.sleep(60)
    finally:
        print("closed", flush=True)
"""


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_that_python_drops_is_sent_again(number: signal.Signals, code: int) -> None:
    """An exception that a handler raises inside a `__del__` is lost."""
    assert ended(DROPPER.format(number=int(number))) == ("closed\n", code)


SWALLOWER = """
    import signal, time
    from concurrent.futures import ThreadPoolExecutor
    from contextlib import closing, contextmanager
    from flows.signals import stop_cleanly_on_signals

    class Slow:
        def close(self):
            try:
                raise ValueError
            except ValueError:
                time.sleep(1)
            print("closed", flush=True)

    @contextmanager
    def slow():
        try:
            yield
        finally:
            time.sleep(1)
            print("ended", flush=True)

    def late():
        time.sleep(4)
        print("waited for", flush=True)

    stop_cleanly_on_signals()
    print("ready", flush=True)
    with slow(), closing(Slow()):
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException:
            pass
        pool = ThreadPoolExecutor(1)
        pool.submit(late)
        time.sleep(60)
"""


def test_a_sigterm_that_code_swallows_is_sent_again_but_not_one_in_progress() -> None:
    """A second signal disturbs neither clean-up code, however long it takes, nor Python's own end."""
    assert ended(SWALLOWER) == ("closed\nended\nwaited for\n", 128 + signal.SIGTERM)


def ended(code: str) -> tuple[str, int]:
    """Return the text that the program printed after its start, and its exit code."""
    process = start(code)
    assert process.stdout is not None
    return process.stdout.read(), process.wait(10)


@pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals are Linux's")
def test_a_stage_ends_when_its_runner_is_killed() -> None:
    """Kill -9 of `dvc repro` must not leave its stage writing artifacts."""
    child = textwrap.dedent(SLEEPER)
    parent = start(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])")
    parent.kill()
    assert parent.stdout is not None
    begin = time.monotonic()
    assert parent.stdout.read() == "closed\n"
    assert time.monotonic() - begin < 30


def start(code: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process
