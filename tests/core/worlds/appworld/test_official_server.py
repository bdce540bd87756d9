"""The fallback's faults: each ends its episode with a reason, and the next episode gets a server that works."""

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.core.interfaces.world import ExecutionTimeout, WorldFault
from tasks.core.worlds.appworld.official_server import OfficialEpisode, OfficialServers, ServerLimits
from tasks.core.worlds.appworld.pool import EpisodePool

pytestmark = pytest.mark.appworld

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
