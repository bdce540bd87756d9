"""Servers that hang, die, are full, or speak otherwise: a fault of the world, or one clear error."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import pytest

from tasks.core.interfaces.world import WorldFault
from tasks.core.processes.addresses import free_port
from tasks.core.transient import Transient
from tasks.core.worlds.openenv.conversation import OpenEnvMismatch, ResetTask
from tasks.core.worlds.openenv.kind import OpenEnvConfig
from tests.openenv_servers import running

pytestmark = pytest.mark.openenv
SCRIPT = str(Path(__file__).with_name("faulty_server.py"))
CONNECTIONS = str(Path(__file__).with_name("faulty_connections.py"))
Open = Callable[..., "OpenEnvWorld"]  # type: ignore[name-defined]  # noqa: F821


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that goes wrong when told to."""
    with running(SCRIPT, str(free_port())) as (url, _):
        yield url


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens the world at an address, with one task, and closes it after the test."""
    from tasks.core.worlds.openenv.world import OpenEnvWorld

    with ExitStack() as opened:

        def world_at(url: str, seed: int = 1, connect_s: float = 10, **rules: object) -> OpenEnvWorld:
            monkeypatch.setattr("tasks.core.worlds.openenv.client.CONNECT_S", connect_s)
            names = {"task_id": "dev_001_1", "scenario_id": "dev_001", "difficulty": 1, "split": "dev"}
            task = ResetTask(**names, instruction="Talk.", reset={"seed": seed}, solution=("once",))
            settled = {"action": {"message": "$text"}, "observation": ("said",), "answer_s": 2} | rules
            config = OpenEnvConfig(url=url, **settled)  # type: ignore[arg-type]
            return opened.enter_context(closing(OpenEnvWorld({"dev": [task]}, config, "first")))

        yield world_at


def test_a_step_that_hangs_is_a_fault_and_the_next_episode_goes_on(url: str, world: Open) -> None:
    opened = world(url, answer_s=0.5)
    episode = opened.open("dev_001_1", 0)
    begin = time.monotonic()
    with pytest.raises(WorldFault, match="no answer in time"):
        episode.step("hang")
    episode.close()
    assert time.monotonic() - begin < 4
    with closing(opened.open("dev_001_1", 0)) as following:
        assert following.step("hi").text == "hi"


def test_an_error_in_the_environment_is_a_fault(url: str, world: Open) -> None:
    with closing(world(url).open("dev_001_1", 0)) as episode, pytest.raises(WorldFault, match="the board broke"):
        episode.step("break")
    with pytest.raises(WorldFault, match="no such level"):
        world(url, seed=13).open("dev_001_1", 0)


def test_an_action_that_the_server_refuses_is_a_bad_turn(url: str, world: Open) -> None:
    with closing(world(url, max_turns=2).open("dev_001_1", 0)) as episode:
        refused = episode.step("longer than ten characters")
        assert (refused.failed, refused.done, refused.reward) == (True, False, 0.0)
        played = episode.step("hi")
        assert (played.text, played.failed, played.done, played.reward) == ("hi", False, True, 1.0)
        assert episode.evaluate().success
        assert episode.step("hi").failed


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (("hi", "null"), "turn 2: the step's reward is null"),
        (("hi", "nan"), "turn 2: the step's reward is null or NaN"),
        (("null", "hi"), "turn 2: the step has a reward, but the reward of an earlier"),
        (("null", "null end"), "turn 2: the step's reward is null"),
    ],
)
def test_a_null_among_rewards_is_an_error_that_names_the_episode(
    said: tuple[str, ...], message: str, url: str, world: Open
) -> None:
    with closing(world(url).open("dev_001_1", 7)) as episode:
        episode.step(said[0])
        with pytest.raises(OpenEnvMismatch, match=f"episode of task dev_001_1 with seed 7, {message}"):
            episode.step(said[1])


def test_a_reward_with_the_last_step_alone_is_the_episodes(url: str, world: Open) -> None:
    with closing(world(url).open("dev_001_1", 0)) as episode:
        assert [episode.step(said).reward for said in ("null", "nan", "once")] == [0.0, 0.0, 1.0]
        assert episode.evaluate().success


def test_a_cut_connection_is_no_new_episode(world: Open) -> None:
    """The package's client would connect anew and step in an environment that nobody reset."""
    port = str(free_port())
    with running(SCRIPT, port) as (url, process):
        opened = world(url, connect_s=15)
        dying, episode = opened.open("dev_001_1", 0), opened.open("dev_001_1", 0)
        with pytest.raises(WorldFault):
            dying.step("die")
        process.wait()
    with running(SCRIPT, port):
        with closing(opened.open("dev_001_1", 0)) as new:  # waits until somebody listens again
            assert new.step("hi").text == "hi"
        with pytest.raises(WorldFault):
            episode.step("hi")


def test_a_connection_that_is_reset_is_a_fault(world: Open) -> None:
    with running(CONNECTIONS, str(free_port()), "reset") as (url, _):
        episode = world(url).open("dev_001_1", 0)
        with pytest.raises(WorldFault):
            episode.step("hi")
        episode.close()


def test_a_proxy_without_its_server_is_asked_again(world: Open) -> None:
    with running(CONNECTIONS, str(free_port()), "proxy") as (url, _):
        episode = world(url).open("dev_001_1", 0)
        assert episode.step("hi").text == "hello"
        episode.close()


def test_a_full_server_says_what_to_change(url: str, world: Open) -> None:
    from tasks.core.worlds.openenv.client import OpenEnvUnavailable

    opened = world(url, connect_s=0.5)
    episodes = [opened.open("dev_001_1", 0) for _ in range(2)]
    with pytest.raises(OpenEnvUnavailable, match=r"Server at capacity: 2/2 .* lower collection.max_concurrent_epis"):
        opened.open("dev_001_1", 0)
    assert [episode.step("hi").text for episode in episodes] == ["hi", "hi"]
    episodes[0].close()
    with closing(opened.open("dev_001_1", 0)) as third:
        assert third.step("ho").text == "ho"


def test_nobody_there_is_one_error_that_may_pass(world: Open) -> None:
    from tasks.core.worlds.openenv.client import OpenEnvUnavailable

    opened = world(f"http://127.0.0.1:{free_port()}", connect_s=0.3)
    with pytest.raises(OpenEnvUnavailable, match=r"no OpenEnv server answers .* set world.openenv.url") as raised:
        opened.open("dev_001_1", 0)
    assert isinstance(raised.value, Transient)


def test_the_schema_is_asked_for_through_the_proxy_that_the_session_goes_through(
    world: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.core.worlds.openenv.client import OpenEnvUnavailable

    for name in ("http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        opened = world("http://openenv.invalid:8000", connect_s=0.1, answer_s=0.2)
        with pytest.raises(OpenEnvUnavailable):
            opened.open("dev_001_1", 0)
        proxy.settimeout(5)
        asked, _ = proxy.accept()
        with asked:
            assert asked.recv(1000).startswith(b"GET http://openenv.invalid:8000/schema ")


def test_no_proxy_is_asked_for_a_server_of_this_machine(url: str, world: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with closing(world(url).open("dev_001_1", 0)) as episode:
        assert episode.step("hi").text == "hi"


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("no_openenv", r"/schema: no OpenEnv schema, or not that of version 0.10"),
        ("other_schema", r"/schema: no OpenEnv schema, or not that of version 0.10"),
        ("no_websocket", r"no OpenEnv websocket: .*HTTP 40"),
        ("other_answer", r"an answer does not match OpenEnv 0.10: .*\n?.*observation"),
        ("other_reward", r"an answer does not match OpenEnv 0.10: .*\n?.*reward"),
        ("other_done", r"an answer does not match OpenEnv 0.10: .*\n?.*done"),
        ("no_json", r"an answer does not match OpenEnv 0.10"),
        ("list", r"an answer does not match OpenEnv 0.10"),
        ("other_types", r"speaks another version of OpenEnv: .*Unknown message type: reset"),
        ("other_fields", r"world.openenv.observation: none of said in an observation with text"),
    ],
)
def test_another_version_is_one_clear_error(way: str, message: str, url: str, world: Open) -> None:
    with pytest.raises(OpenEnvMismatch, match=message):
        world(f"{url}/{way}").open("dev_001_1", 0)


def test_an_action_of_other_fields_is_refused_before_anything_is_played(url: str, world: Open) -> None:
    with pytest.raises(OpenEnvMismatch, match=r"has no text and needs message; its fields are message, metadata"):
        world(url, action={"text": "$text"}).open("dev_001_1", 0)


def test_a_server_of_another_version_than_the_named_one_is_refused(url: str, world: Open) -> None:
    told = httpx2.get(f"{url}/metadata").json()["version"]
    with closing(world(url, version=told).open("dev_001_1", 0)) as episode:
        assert episode.step("hi").text == "hi"
    with pytest.raises(OpenEnvMismatch, match=rf"is of version {told}, but world.openenv.version is {told}9: start"):
        world(url, version=f"{told}9").open("dev_001_1", 0)


@pytest.mark.parametrize(
    ("way", "message"),
    [("no_websocket", "/metadata: no OpenEnv metadata"), ("unversioned", "the server reports no version")],
)
def test_a_server_that_tells_no_version_has_not_the_named_one(way: str, message: str, url: str, world: Open) -> None:
    with pytest.raises(OpenEnvMismatch, match=message):
        world(f"{url}/{way}", version="1").open("dev_001_1", 0)


def test_a_closed_world_opens_nothing(url: str, world: Open) -> None:
    opened = world(url)
    episode = opened.open("dev_001_1", 0)
    opened.close()
    with pytest.raises(WorldFault, match="closed"):
        episode.step("hi")
    with pytest.raises(WorldFault, match="closed"):
        opened.open("dev_001_1", 0)
    episode.close()
