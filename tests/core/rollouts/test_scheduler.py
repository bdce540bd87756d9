"""Engines that sample in the background, and what is left when a run is interrupted while it waits."""

import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config.collection import EarlyStop
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import Generation, GenerationRequest
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats

Row = dict[str, Any]
Play = Callable[..., list[Row]]


class ThreadedEngine:
    """The transformers engine on a thread of its own, which samples whenever something is queued."""

    name, version, releases_device = "threaded", "1", False

    def __init__(self, engine: TransformersEngine) -> None:
        self.engine, self.context_length, self.slept = engine, engine.context_length, 0
        self._lock, self._queued, self._closed = threading.Lock(), threading.Event(), False
        self._done: list[Generation] = []
        self._callback: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def load_adapter(self, path: Path | None) -> None:
        self.engine.load_adapter(path)

    def submit(self, request: GenerationRequest) -> None:
        with self._lock:
            self.engine.submit(request)
        self._queued.set()

    def collect(self) -> list[Generation]:
        raise AssertionError("an engine in the background is asked what is ready")

    def ready(self) -> list[Generation]:
        with self._lock:
            done, self._done = self._done, []
        return done

    def notify(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def release(self, sequence_id: str) -> None:
        with self._lock:
            self.engine.release(sequence_id)
            self._done = [turn for turn in self._done if turn.sequence_id != sequence_id]

    def sleep(self) -> None:
        self.slept += 1

    def close(self) -> None:
        self._closed = True
        self._queued.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._closed:
            self._queued.wait()
            self._queued.clear()
            while self._some_more():
                self._callback()

    def _some_more(self) -> bool:
        with self._lock:
            found = self.engine.collect()
            self._done += found
        return bool(found)


@pytest.fixture
def threaded(engine: TransformersEngine) -> Iterator[ThreadedEngine]:
    threaded = ThreadedEngine(engine)
    yield threaded
    threaded.close()


@pytest.fixture
def play(chat: ChatFormat, settings: PlaySettings) -> Play:
    def run(world: Any, engine: Any, stats: CollectionStats | None = None, **changes: Any) -> list[Row]:
        changed, planned = dataclasses.replace(settings, **changes), plan_rollouts(world.tasks("train"), 4, seed=3)
        return play_rollouts(world, engine, chat, planned, changed, policy=None, stats=stats)

    return run


def test_an_engine_in_the_background_samples_the_same_tokens(
    game: Callable[..., Any], play: Play, threaded: ThreadedEngine
) -> None:
    world, stats = game(), CollectionStats()
    in_background = play(world, threaded, stats)
    in_step = play(game(), threaded.engine)
    told = ("task_id", "rollout_index", "token_ids", "return", "end_reason")
    assert [[row[name] for name in told] for row in in_background] == [[row[name] for name in told] for row in in_step]
    assert world.open_now == 0 and threaded.slept == 1
    assert stats.generated_tokens >= sum(sum(row["policy_mask"]) for row in in_background)
    assert stats.engine_s + stats.waiting_s <= stats.wall_s


def test_nothing_is_lost_in_the_background_when_the_world_breaks_and_collection_stops_early(
    game: Callable[..., Any], play: Play, threaded: ThreadedEngine
) -> None:
    world = game(brittle=["t0"], unopenable=["t1"], endless=["t2"])
    rows = play(world, threaded, max_concurrent_episodes=5)
    assert len(rows) == 24 and world.open_now == 0
    lost = {row["task_id"]: row["world_retries"] for row in rows if row["end_reason"] == "world_fault"}
    assert lost["t1"] == 1
    assert {row["end_reason"] for row in rows if row["task_id"] == "t2"} == {"execution_timeout"}
    world = game()
    rows = play(world, threaded, max_concurrent_episodes=5, early_stop=EarlyStop(min_per_task=2, share=0.5))
    assert len(rows) == 24 and world.open_now == 0
    assert "cut_by_early_stop" in {row["end_reason"] for row in rows}


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_interruption_in_the_engine_closes_everything_while_worlds_are_at_work(
    game: Callable[..., Any],
    play: Play,
    engine: TransformersEngine,
    monkeypatch: pytest.MonkeyPatch,
    interrupt: type[BaseException],
) -> None:
    world, collect, calls = game(pause_s=0.1), engine.collect, iter(range(2))

    def interrupted() -> list[Generation]:
        if next(calls, None) is None:
            raise interrupt
        return collect()

    monkeypatch.setattr(engine, "collect", interrupted)
    with pytest.raises(interrupt):
        play(world, engine)
    assert world.open_now == 0
    assert collect() == []


def test_an_interruption_while_it_waits_closes_everything(
    game: Callable[..., Any], play: Play, threaded: ThreadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, release = game(), threading.Event()
    threaded.notify = lambda callback: None  # type: ignore[method-assign]
    monkeypatch.setattr(threaded, "_callback", lambda: interrupt_main())

    def interrupt_main() -> None:
        if not release.is_set():
            release.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        play(world, threaded)
    assert world.open_now == 0 and threaded.slept == 1
    assert threaded.engine.collect() == []
