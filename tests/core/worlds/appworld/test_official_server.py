"""The pool beside the package's own server: same code in, same output and evaluation; and the fallback's faults."""

import ast
import contextlib
import errno
import os
import re
import signal
import socket
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.core.interfaces.world import ExecutionTimeout, Task, WorldFault
from tasks.core.worlds.appworld.kind import AppWorldConfig
from tasks.core.worlds.appworld.official_server import (
    OfficialEpisode,
    OfficialServer,
    OfficialServers,
    ServerLimits,
    make_agent_root,
)
from tasks.core.worlds.appworld.pool import EpisodePool
from tasks.core.worlds.appworld.world import GAVE_UP, AppWorldTasks

pytestmark = pytest.mark.appworld

CODES = (
    "print(1)\nx = [1, 2]",
    "x",
    "print(x, {'a': 1})",
    "print([{'a': 'b' * 60, 'c': 'd' * 60}])",
    "print('h\u00e9 \u2603')",
    "print(1",
    "raise ValueError('a\\nb')",
    "def f(n):\n    return g(n)\ndef g(n):\n    return n / 0\nf(1)",
    "try:\n    1 / 0\nexcept Exception as e:\n    raise KeyError('k') from e",
    "try:\n    1 / 0\nexcept Exception:\n    raise KeyError('k')",
    "",
    "# only a comment",
    "exit()",
    "raise SystemExit",
    "import os\nos.remove('x')",
    "import subprocess",
    "from os import system",
    "import numpy",
    "open('x', 'w')",
    "input('x')",
    "import time\nprint(time.time())\ntime.sleep(3)",
    "print(pendulum.now(), datetime.datetime.now(), DateTime.now())",
    "print(random.random(), random.choice('abc'))",
    "print(list(apis.keys()))",
    "print(dir())",
    "apis.foo.bar()",
    "apis.spotify.bar()",
    "apis.spotify.login(1)",
    "apis.spotify.show_song()",
    "apis.spotify.show_song(song_id='x')",
    "print(apis.spotify.show_song(song_id=99999))",
    "print(apis.spotify.show_song(song_id=''))",
    "apis.supervisor.show_profile(x=lambda: 1)",
    "apis.venmo.create_transaction(x={1, 2})",
    "print(apis.phone.login(username=[1], password={}))",
    "print(apis.spotify.login(username='a', password='b'))",
    "print(apis.api_docs.show_app_descriptions())",
    "print(apis.api_docs.show_api_descriptions(app_name='venmo'))",
    "print(apis.api_docs.show_api_doc(app_name='venmo', api_name='create_transaction'))",
    "print(apis.api_docs.show_api_doc(app_name='venmo', api_name='nope'))",
    "print(requester.get('/supervisor/profile'))",
    "print(requester.request('supervisor', 'show_profile'))",
    "for _ in range(1001): apis.supervisor.show_active_task()",
    "async def f(): return 1\nprint(await f())",
    "%time 1",
    "assert False, 'no'",
    "apis.supervisor.complete_task(answer=[1, 2])",
    "print(apis.supervisor.show_active_task())",
)


@pytest.fixture(scope="module")
def server(
    appworld_python: Path, appworld_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OfficialServer]:
    """The stock server on all of the data, ground truth included; its outputs go to a folder of the test."""
    root = tmp_path_factory.mktemp("official")
    (root / "data").symlink_to(appworld_root / "data")
    server = OfficialServer(appworld_python, root)
    yield server
    server.close()


def blocks(root: Path, task: str) -> list[str]:
    """The oracle's statements, three at a time."""
    source = (root / "data" / "tasks" / task / "ground_truth" / "compiled_solution.py").read_text()
    (solution,) = (one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef) and one.name == "solution")
    body = [ast.unparse(statement) for statement in solution.body]
    return ["\n".join(body[begin : begin + 3]) for begin in range(0, len(body), 3)]


def play_both(server: OfficialServer, pool: EpisodePool, task: str, codes: list[str]) -> None:
    server.call("initialize", task_id=task, experiment_name=f"reference-{uuid.uuid4().hex}")
    with closing(pool.open(task)) as episode:
        for code in codes:
            assert episode.run(code).output == server.call("execute", task_id=task, code=code), code
        expected = server.call("evaluate", task_id=task, suppress_errors=True)
        verdict = episode.evaluate()
        assert list(verdict.passed) == [one["requirement"] for one in expected["passes"]]
        assert list(verdict.failed) == [one["requirement"] for one in expected["failures"]]
        assert len(verdict.passed) + len(verdict.failed) == expected["num_tests"]
    server.call("close", task_id=task)


def test_oracles_and_halves_of_them_answer_and_score_the_same(
    server: OfficialServer, pool: EpisodePool, appworld_root: Path
) -> None:
    folder = appworld_root / "data" / "tasks"
    for task in sorted(path.name for path in folder.glob("*_1")):
        play_both(server, pool, task, blocks(appworld_root, task))
    for task in sorted(path.name for path in folder.glob("*_2"))[:6]:
        codes = blocks(appworld_root, task)
        play_both(server, pool, task, codes[: len(codes) // 2])


def test_errors_and_oddities_answer_the_same(server: OfficialServer, pool: EpisodePool, task_id: str) -> None:
    play_both(server, pool, task_id, list(CODES))


def test_deep_recursion_answers_the_same_but_for_the_depth(
    server: OfficialServer, pool: EpisodePool, task_id: str
) -> None:
    code = "def f():\n    f()\nf()"
    server.call("initialize", task_id=task_id, experiment_name=f"reference-{uuid.uuid4().hex}")
    episode = pool.open(task_id)
    outputs = (episode.run(code).output, server.call("execute", task_id=task_id, code=code))
    episode.close()
    ours, theirs = (re.sub(r"repeated \d+ more", "repeated N more", one) for one in outputs)
    assert ours == theirs and "RecursionError" in ours


def test_the_red_team_gets_through_on_the_stock_server(server: OfficialServer, question_id: str) -> None:
    """The server really has what the pool holds back."""
    server.call("initialize", task_id=question_id, experiment_name=f"reference-{uuid.uuid4().hex}")
    for code in (
        f"from appworld.ground_truth import GroundTruth\nprint(GroundTruth.load('{question_id}').answer)",
        "from appworld.apps.spotify.models import User\nprint(User.first().password)",
    ):
        assert "Execution failed" not in server.call("execute", task_id=question_id, code=code)


def test_the_fallback_plays_scores_and_hides_the_ground_truth(
    pool: EpisodePool, appworld_python: Path, appworld_root: Path, task_id: str, question_id: str
) -> None:
    tasks = {"train": [Task(one, one[:-2], 1, "train", "x") for one in (task_id, question_id)]}
    servers = OfficialServers(appworld_python, appworld_root, pool)
    world = AppWorldTasks(tasks, servers.open, servers.close, AppWorldConfig(), "first")  # type: ignore[arg-type]
    try:
        episode = world.open(question_id, 0)
        code = f"from appworld.ground_truth import GroundTruth\nprint(GroundTruth.load('{question_id}').answer)"
        assert episode.step(f"```python\n{code}\n```").failed
        for block in blocks(appworld_root, question_id):
            seen = episode.step(f"```python\n{block}\n```")
        assert seen.done and "supervisor.complete_task" in seen.api_calls
        assert episode.evaluate().success
        episode.close()
        episode = world.open(task_id, 0)
        episode.step("```python\napis.supervisor.complete_task(status='fail')\n```")
        assert GAVE_UP in episode.evaluate().failed
        servers._live.copy().pop().kill()
        with pytest.raises(WorldFault):
            episode.step("```python\n1\n```")
        episode.close()
        world.open(task_id, 0).close()
    finally:
        world.close()


def test_an_agent_root_has_no_ground_truth(appworld_root: Path, tmp_path: Path) -> None:
    root = make_agent_root(appworld_root, tmp_path / "root")
    assert any(root.glob("data/tasks/*/specs.json"))
    assert not any("ground_truth" in str(path) for path in root.glob("data/tasks/*/*"))


NOTE = """
words = {one['account_name']: one['password'] for one in apis.supervisor.show_account_passwords()}
token = apis.simple_note.login(username=apis.supervisor.show_profile()['email'], password=words['simple_note'])
apis.simple_note.create_note(access_token=token['access_token'], title='note', content=CONTENT)
"""


@pytest.fixture(scope="module")
def servers(appworld_python: Path, appworld_root: Path, pool: EpisodePool) -> Iterator[OfficialServers]:
    """Servers that may write no file over 512 KB: to them the disk is full then."""
    servers = OfficialServers(appworld_python, appworld_root, pool, ServerLimits(file_bytes=2**19))
    yield servers
    servers.close()


@pytest.fixture
def bystander(servers: OfficialServers, task_id: str) -> Iterator[OfficialEpisode]:
    """An episode on a server of its own, which no fault may touch."""
    episode = servers.open(task_id)
    episode.run("kept = 7")
    yield episode
    assert episode.run("print(kept)").output == "7\n" and episode.evaluate().status is None
    episode.close()


def ends(servers: OfficialServers, episode: OfficialEpisode, task_id: str) -> None:
    """The episode has failed: nothing that it saved counts, its process goes, the next one works."""
    pid = episode._server.pid
    with pytest.raises(WorldFault, match="not to be trusted"):
        episode.evaluate()
    episode.close()
    assert not Path(f"/proc/{pid}").exists()
    fresh = servers.open(task_id)
    assert fresh.run("print(1)").output == "1\n"
    fresh.close()


@pytest.mark.usefixtures("bystander")
def test_a_full_disk_is_a_world_fault(servers: OfficialServers, task_id: str) -> None:
    episode = servers.open(task_id)
    with pytest.raises(WorldFault, match="/execute with 500"):
        episode.run(NOTE.replace("CONTENT", "'x' * 2**20"))
    ends(servers, episode, task_id)


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_hung_server_ends_its_episode(
    servers: OfficialServers, task_id: str, number: signal.Signals
) -> None:
    episode = servers.open(task_id)
    episode._limits = replace(episode._limits, wall_seconds_per_run=1.0, hung_seconds=1.0)
    os.kill(episode._server.pid, number)
    with pytest.raises((WorldFault, ExecutionTimeout)) as caught:
        for _ in range(100):
            episode.run("1")
    assert str(caught.value)
    ends(servers, episode, task_id)


def test_a_port_is_nobody_elses(servers: OfficialServers, bystander: OfficialEpisode, task_id: str) -> None:
    other = servers.open(task_id)
    ports = {bystander._server.port, other._server.port}
    other.close()
    assert len(ports) == 2
    for port in ports:
        with contextlib.closing(socket.socket()) as intruder, pytest.raises(OSError) as caught:
            intruder.bind(("127.0.0.1", port))
            intruder.listen()
        assert caught.value.errno == errno.EADDRINUSE


def test_memory_is_limited_and_failed_calls_are_logged(servers: OfficialServers, task_id: str) -> None:
    episode = servers.open(task_id)
    assert "MemoryError" in episode.run("x = bytearray(5 * 2**30)").output
    calls = episode.run(
        "apis.supervisor.show_active_task()\n"
        "try: apis.spotify.login(username='nobody@x.com', password='x')\n"
        "except Exception: pass\n"
        "apis.supervisor.show_profile()"
    ).calls
    assert calls == (
        ("supervisor.show_active_task", False),
        ("spotify.login", True),
        ("supervisor.show_profile", False),
    )
    episode.close()


def test_no_note_makes_its_state_unreadable(servers: OfficialServers, task_id: str) -> None:
    """U+2028 ends a line for Python, and not in JSON."""
    episode = servers.open(task_id)
    assert not episode.run(NOTE.replace("CONTENT", "'one\\u2028two'")).failed
    assert episode.evaluate().failed
    episode.close()
