"""Servers that are killed, cut off or mute: real ones, two own and one behind a proxy that meddles."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm.client import ServerLost
from tasks.core.engines.vllm.engine import VllmEngine, open_vllm
from tasks.core.engines.vllm.probe_records import LocalModel
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.delivery_probe import mean_difference

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

SHIPPED = Path(__file__).parents[4] / "data" / "base_policies" / "pocket"
POLICY = PolicyConfig(device="cpu")
MARKED = 7
"""Turns of this length are the ones that are meddled with."""
Processes = Callable[[], list[psutil.Process]]


class Meddler:
    """A proxy before a server: it cuts off some connections that carry marked turns, or never passes those on."""

    def __init__(self, url: str) -> None:
        self._port, self.cuts, self.mute = int(url.rpartition(":")[2]), 0, False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._relay, "127.0.0.1", 0), self._loop)
        self.url = f"http://127.0.0.1:{listening.result().sockets[0].getsockname()[1]}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        above, below = await asyncio.open_connection("127.0.0.1", self._port)
        answers = asyncio.create_task(self._copy(above, writer))
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                marked = f'"max_tokens": {MARKED},'.encode() in data
                if marked and self.cuts:
                    self.cuts -= 1
                    break
                if not (marked and self.mute):
                    below.write(data)
        answers.cancel()
        writer.close()
        below.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@pytest.fixture
def meddler(urls: tuple[str, ...]) -> Iterator[Meddler]:
    proxy = Meddler(urls[0])
    yield proxy
    proxy.close()


def turns(chat: ChatFormat, count: int, tokens: int) -> list[GenerationRequest]:
    """Requests for turns of exactly `tokens` tokens."""
    words = [f"Send {place} coins to my friend." for place in range(count)]
    openings = [chat.prompt_ids([{"role": "user", "content": text}]) for text in words]
    settings = SamplingSettings(1.0, tokens, ())
    return [GenerationRequest(f"c{place}", prompt, settings, place) for place, prompt in enumerate(openings)]


def submit(engine: VllmEngine, requests: Sequence[GenerationRequest]) -> None:
    for one in requests:
        engine.submit(one)


def collect_all(engine: VllmEngine) -> dict[str, Generation]:
    done: dict[str, Generation] = {}
    while generations := engine.collect():
        done.update({turn.sequence_id: turn for turn in generations})
    return done


def test_a_connection_that_breaks_is_not_taken_for_a_dead_server(meddler: Meddler, chat: ChatFormat) -> None:
    """Servers close idle connections, now and then just as one is used again."""
    found = open_vllm(VllmConfig(urls=(meddler.url,), restarts=0), POLICY, SHIPPED, chat)
    found.load_adapter(None)
    meddler.cuts = 2
    submit(found, turns(chat, 4, MARKED))
    assert len(collect_all(found)) == 4
    assert meddler.cuts == 0
    found.close()


@pytest.mark.parametrize(
    ("cuts", "mute", "words"), [(1000, False, "Disconnected|Reset"), (0, True, "no answer in 5 s")]
)
def test_a_server_that_is_lost_too_often_is_one_error(
    meddler: Meddler, chat: ChatFormat, monkeypatch: pytest.MonkeyPatch, cuts: int, mute: bool, words: str
) -> None:
    monkeypatch.setattr("tasks.core.engines.vllm.server_pool.LONGEST_TURN_S", 5)
    found = open_vllm(VllmConfig(urls=(meddler.url,), restarts=1), POLICY, SHIPPED, chat)
    found.load_adapter(None)
    meddler.cuts, meddler.mute = cuts, mute
    submit(found, turns(chat, 1, MARKED))
    with pytest.raises(ServerLost, match=rf"server 0 is gone.*restarts: 1.*({words})"):
        collect_all(found)
    found.close()


def test_no_restarts_left_is_one_error_and_the_next_policy_starts_the_server_again(
    engine: VllmEngine, chat: ChatFormat, servers: Processes
) -> None:
    """Two engines of one pipeline use the same servers."""
    strict = open_vllm(VllmConfig(servers=2, sharing="alternate", restarts=0), POLICY, SHIPPED, chat)
    strict.load_adapter(None)
    submit(strict, turns(chat, 4, 1000))
    os.kill(servers()[0].pid, signal.SIGKILL)
    with pytest.raises(ServerLost, match="restarts: 0"):
        collect_all(strict)
    engine.load_adapter(None)
    submit(engine, turns(chat, 4, 5))
    assert len(collect_all(engine)) == 4


def test_a_killed_server_comes_back_and_its_turns_are_played_again(
    engine: VllmEngine, chat: ChatFormat, adapters: Callable[..., Path], servers: Processes
) -> None:
    folder = adapters(6)
    engine.load_adapter(folder)
    asked = turns(chat, 8, 300)
    submit(engine, asked)
    victim = servers()[0]
    workers = victim.children(recursive=True)
    os.kill(victim.pid, signal.SIGKILL)
    done = collect_all(engine)
    assert set(done) == {one.sequence_id for one in asked}
    for one in asked:
        turn = done[one.sequence_id]
        ((full,),) = LocalModel(SHIPPED, POLICY).readings([folder], [[*one.prompt_ids, *turn.token_ids]])
        assert mean_difference(full[len(one.prompt_ids) - 1 :], turn.logprobs) < 1e-4
    assert victim.pid not in [server.pid for server in servers()]
    assert not any(worker.is_running() for worker in workers), "vLLM's workers outlive a killed server by themselves"
