"""The pool on the real engine: verdicts, isolation of episodes, limits, healing, nothing left behind."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.core.interfaces.world import ExecutionTimeout, WorldFault
from tasks.core.worlds.appworld import layout
from tasks.core.worlds.appworld.pool import EpisodePool, LiveEpisode
from tests.core.sandbox.test_lifetime import alive

pytestmark = pytest.mark.appworld


@pytest.fixture
def episode(pool: EpisodePool, task_id: str) -> Iterator[LiveEpisode]:
    with closing(pool.open(task_id)) as episode:
        yield episode


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


FAULTS = {
    "endless loop": "while True: pass",
    "endless loop, all caught": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "endless C loop": "sum(range(10**12))",
    "much work between API calls": "for _ in range(100): apis.supervisor.show_profile(), sum(range(10**7))",
    "os._exit": "import os\nos.__dict__['abort']()",
    "real _exit": "[c for c in object.__subclasses__() if c.__name__ == 'Popen'][0].__init__.__globals__['os'].abort()",
    "crash by recursion": "builtins.__import__('sys').setrecursionlimit(10**7)\ndef f(): f()\nf()",
    "bytes on the descriptor": "import os\nos.__dict__['writev'](3, [b'x' * 64])",
}
"""Code that must end its own episode and nothing else."""

SURVIVED = {
    "sys.exit": "raise SystemExit(3)",
    "fork bomb": "import os\nwhile True: os.__dict__['posix_spawn']('/bin/true', [], {})",
    "100 MB of output": "for _ in range(100): print('x' * 2**20)",
    "deep recursion": "def f(): f()\nf()",
    "much memory": "x = bytearray(3 * 2**30)",
    "broken builtins": "builtins.len = None\nbuiltins.print = None\nbuiltins.isinstance = None",
    "unicode": "print('h\u00e9llo \u2603 \\ud800')",
    "syntax error": "print(",
    "null byte": "x = 1\x00",
    "lone surrogate in the code": "x = '\ud800'",
    "a file": "print(open('/etc/passwd').read())",
    "a socket": "import socket",
    "no URL": "requester.client.exchange('GET', 'http://[', [], '')",
    "a thread": "import time\nthreading = builtins.__import__('threading')\nthreading.Thread(target=print).start()",
}
"""Code that may fail, but whose episode goes on or ends with a reason."""


@pytest.mark.parametrize("name", FAULTS)
def test_an_episode_ends_with_a_reason_and_no_other_is_touched(pool: EpisodePool, task_id: str, name: str) -> None:
    with closing(pool.open(task_id)) as bystander, closing(pool.open(task_id)) as culprit:
        bystander.run("kept = 7")
        pids = list(culprit.pids.values())
        try:
            run = culprit.run(FAULTS[name])
            assert run.failed and not run.completed
            pids = [culprit.pids["shell"]]
        except ExecutionTimeout as end:
            assert str(end)
        culprit.close()
        assert eventually(lambda: not any(alive(pid) for pid in pids))
        assert bystander.run("print(kept)").output == "7\n"
        assert bystander.evaluate().failed


@pytest.mark.parametrize("name", SURVIVED)
def test_an_episode_goes_on_after_a_fault_of_the_agent(pool: EpisodePool, episode: LiveEpisode, name: str) -> None:
    run = episode.run(SURVIVED[name])
    assert len(run.output) < pool.limits.output_chars + 1000
    assert "root:" not in run.output
    after = episode.run("x = 5")
    assert after.failed == (name == "broken builtins") or not after.failed
    assert episode.evaluate().status is None


def test_a_state_lasts_over_turns_and_never_over_episodes(pool: EpisodePool, task_id: str) -> None:
    first = pool.open(task_id)
    assert first.run("mine = apis.supervisor.show_profile()['email']\nprint(mine)").calls == (
        ("supervisor.show_profile", False),
    )
    assert "@" in first.run("print(mine)").output
    assert first.run("apis.supervisor.complete_task(status='fail')").completed
    assert first.evaluate().status == "fail"
    first.close()
    second = pool.open(task_id)
    assert "NameError" in second.run("print(mine)").output
    assert second.evaluate().status is None
    second.close()
    with pytest.raises(WorldFault, match="closed"):
        second.run("1")


def test_api_calls_are_the_worlds_own_log(episode: LiveEpisode) -> None:
    run = episode.run(
        "for _ in range(2):\n"
        "    try: apis.spotify.login(username='nobody@x.com', password='x')\n"
        "    except Exception: pass\n"
        "requester.request_tracker.requests.clear()\n"
        "print(apis.supervisor.show_active_task()['status'])"
    )
    assert run.calls == (("spotify.login", True), ("spotify.login", True), ("supervisor.show_active_task", False))
    assert run.output == "None\n"


def test_open_waits_for_a_place_and_then_says_so(pool: EpisodePool, task_id: str) -> None:
    live = [pool.open(task_id) for _ in range(pool.limits.max_concurrent_episodes)]
    with pytest.raises(WorldFault, match="no place"):
        pool.open(task_id)
    threading.Timer(0.1, live[0].close).start()
    live.append(pool.open(task_id))
    worlds = {episode.pids["world"] for episode in live[1:]}
    for episode in live:
        episode.close()
    assert len(worlds) == pool.limits.max_concurrent_episodes
    assert len(worlds & set(pool.processes.pids)) == pool.limits.idle_worlds
    assert eventually(lambda: sum(alive(pid) for pid in worlds) == pool.limits.idle_worlds)


def test_an_unknown_task_is_refused_and_the_pool_lives(pool: EpisodePool, task_id: str) -> None:
    with pytest.raises(WorldFault, match="doesn't exist"):
        pool.open("nosuch_1")
    pool.open(task_id).close()


@pytest.mark.parametrize("name", ["shell", "world"])
def test_a_process_killed_from_outside_is_a_world_fault(pool: EpisodePool, task_id: str, name: str) -> None:
    episode, bystander = pool.open(task_id), pool.open(task_id)
    os.kill(episode.pids[name], signal.SIGKILL)
    with pytest.raises(WorldFault, match="killed from outside"):
        episode.run("1")
    episode.close()
    assert not bystander.run("1").failed
    bystander.close()


def test_a_hung_world_is_a_world_fault(pool: EpisodePool, task_id: str) -> None:
    episode = pool.open(task_id)
    episode._limits = replace(pool.limits, wall_seconds_per_run=1.0, hung_seconds=1.0)
    pids = list(episode.pids.values())
    os.kill(episode.pids["world"], signal.SIGSTOP)
    with pytest.raises(WorldFault, match="hangs"):
        episode.run("1")
    episode.close()
    assert eventually(lambda: not any(alive(pid) for pid in pids))
    pool.open(task_id).close()


def test_a_world_serves_again_only_after_an_episode_without_fault(pool: EpisodePool, task_ids: list[str]) -> None:
    worlds = []
    for number, task_id in enumerate(task_ids[:4]):
        episode = pool.open(task_id)
        worlds.append(episode.pids["world"])
        code = "1" if number != 1 else "import os\nos.__dict__['abort']()\nbuiltins.__import__('posix').abort()"
        with contextlib.suppress(ExecutionTimeout):
            episode.run(code)
        episode.close()
    assert worlds[0] == worlds[1] != worlds[2] == worlds[3]
    assert not alive(worlds[1]) and worlds[3] in pool.processes.pids


def test_an_idle_world_or_evaluator_that_died_is_not_noticed(pool: EpisodePool, task_id: str) -> None:
    episode = pool.open(task_id)
    expected = episode.evaluate()
    episode.close()
    kill_idle(pool)
    episode = pool.open(task_id)
    assert episode.run("print(1)").output == "1\n" and episode.evaluate() == expected
    episode.close()


def test_a_used_world_is_a_fresh_one(pool: EpisodePool, task_ids: list[str], task_id: str) -> None:
    """Whatever was done in a world before, and for whichever task: an episode starts from the same bytes."""
    look = "print(apis.supervisor.show_account_passwords(), random.random())"
    kill_idle(pool)
    with closing(pool.open(task_id)) as new:
        reference = [new.run(code).output for code in (look, NOTES)], new.state()
    for other in (task_id, task_ids[-1]):
        episode = pool.open(other)
        episode.run(NOTES)
        episode.run("apis.supervisor.complete_task(answer=3)")
        world = episode.pids["world"]
        episode.close()
        episode = pool.open(task_id)
        assert episode.pids["world"] == world
        assert episode.state() == UNTOUCHED
        assert [episode.run(code).output for code in (look, NOTES)] == reference[0]
        assert episode.state() == reference[1]
        episode.close()


UNTOUCHED = {"changes": {app: [] for app in layout.DATABASES}, "hashes": {}, "log": []}

NOTES = """
words = {one['account_name']: one['password'] for one in apis.supervisor.show_account_passwords()}
token = apis.simple_note.login(username=apis.supervisor.show_profile()['email'], password=words['simple_note'])
token = token['access_token']
print(token, apis.simple_note.create_note(access_token=token, title='mine', content='mine'))
print(apis.simple_note.search_notes(access_token=token, query='mine'))
"""


def kill_idle(pool: EpisodePool) -> None:
    """Kill the idle worlds and evaluators."""
    idle = pool.processes.pids[2:]
    for pid in idle:
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not any(alive(pid) for pid in idle))


def test_a_dead_engine_is_replaced(pool: EpisodePool, task_id: str) -> None:
    episode = pool.open(task_id)
    dies_with(episode, pool.processes.pids[1])
    fresh = pool.open(task_id)
    assert fresh.run("print(1)").output == "1\n"
    fresh.close()


def dies_with(episode: LiveEpisode, victim: int) -> None:
    """Kill a process that the episode hangs on: it ends with a fault and leaves nothing."""
    pids = list(episode.pids.values())
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorldFault):
        for _ in range(100):
            episode.run("1")
            time.sleep(0.05)
    episode.close()
    assert eventually(lambda: not any(alive(pid) for pid in pids))


def test_episodes_run_side_by_side_from_threads(pool: EpisodePool, task_ids: list[str]) -> None:
    outputs: dict[int, str] = {}

    def play(number: int) -> None:
        episode = pool.open(task_ids[number % len(task_ids)])
        episode.run(f"x = {number}")
        outputs[number] = episode.run("print(x)").output
        episode.close()

    with ThreadPoolExecutor(pool.limits.max_concurrent_episodes) as threads:
        list(threads.map(play, range(pool.limits.max_concurrent_episodes)))
    assert outputs == {number: f"{number}\n" for number in range(pool.limits.max_concurrent_episodes)}


def test_a_dead_zygote_is_replaced_and_close_leaves_no_process(
    appworld_python: Path, appworld_root: Path, task_id: str
) -> None:
    pool = EpisodePool(appworld_python, appworld_root)
    episode = pool.open(task_id)
    dies_with(episode, pool.processes.pids[0])
    episode = pool.open(task_id)
    assert episode.run("print(1)").output == "1\n"
    pids = [*episode.pids.values(), *pool.processes.pids]
    pool.close()
    assert eventually(lambda: not any(alive(pid) for pid in pids))
    with pytest.raises(WorldFault):
        episode.run("1")
    episode.close()
    with pytest.raises(WorldFault, match="closed"):
        pool.open(task_id)
