"""The scheduler: many episodes at once, one engine for all of them, and a thread pool for their worlds' work.

If the engine is deterministic, the order of all work depends only on the seeds: episodes advance in pool threads, but
the scheduler handles their results one engine call later and in a fixed order. So neither the order of rows nor the
make-up of a batch depends on the clock. Early stop is by length then (`early_stop`), else by who ends first. An engine
that samples in the background receives each turn request as soon as the episode makes it; there the clock decides when
turns end.
"""

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import Any, NamedTuple

from tasks.core.config.collection import EarlyStop
from tasks.core.interfaces.engine import (
    BackgroundEngine,
    ContextOverflow,
    Engine,
    Generation,
    GenerationRequest,
    samples_in_background,
)
from tasks.core.interfaces.world import World, WorldFault
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.records.timings import Timings
from tasks.core.rollouts.early_stop import CUT_REASON, LengthRule
from tasks.core.rollouts.episode import Collector, EpisodeEnd, LiveRollout
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings

_log = logging.getLogger(__name__)
_FAULTS_TOLD = 20
"""How many different fault messages are logged and kept: some name a task or a process, so that no two are the same."""


@dataclass
class CollectionStats:
    """Statistics of one `play_rollouts`, filled while it runs. All times are wall-clock seconds."""

    began: float = field(default_factory=time.time)
    """Seconds since the epoch, by the clock of the machine that plays."""
    wall_s: float = 0.0
    engine_s: float = 0.0
    """Time in the engine."""
    waiting_s: float = 0.0
    """Time blocked on the world."""
    world_s: float = 0.0
    """Time in the world, summed over its threads."""
    generated_tokens: int = 0
    """All sampled tokens, including those of void rollouts and stop tokens that the conversation drops."""
    world_retries: int = 0
    """Rollouts that were played again because of a world fault."""
    world_faults: Counter[str] = field(default_factory=Counter)
    """Error messages of worlds that broke, including attempts that were played again."""
    end_reasons: Counter[str] = field(default_factory=Counter)
    clocks: dict[str, list[float]] = field(default_factory=dict)
    """When each rollout (by name) was opened and its turns were answered, in seconds since the epoch."""
    deliveries: list[dict[str, Any]] = field(default_factory=list)
    """Proofs that servers received the policy, and what could not be established."""

    @property
    def tokens_per_s(self) -> float:
        seconds = self.wall_s or self.engine_s + self.waiting_s
        return self.generated_tokens / seconds if seconds else 0.0

    def count_fault(self, rollout: str, said: str) -> None:
        """Count a world fault, and log its message if it is new."""
        if said not in self.world_faults and len(self.world_faults) < _FAULTS_TOLD:
            _log.warning("%s: a world fault: %s", rollout, said)
        self.world_faults[said] += 1

    def timings(self) -> Timings:
        """Return the figures for timings.json."""
        figures: dict[str, Any] = {**vars(self), "end_reasons": dict(sorted(self.end_reasons.items()))}
        figures["world_faults"] = dict(self.world_faults.most_common(_FAULTS_TOLD))
        del figures["began"]
        figures["clocks"] = {name: [round(at, 3) for at in clock] for name, clock in sorted(self.clocks.items())}
        if not self.deliveries:
            del figures["deliveries"]
        return Timings(tokens_per_s=self.tokens_per_s, rollouts=self.end_reasons.total(), **figures)


def total(parts: Sequence[CollectionStats]) -> CollectionStats:
    """Return the sum of parts that were played one after another or at once.

    For parts played at once the wall time is shorter than the sum of theirs.
    """
    span = max(stats.began + stats.wall_s for stats in parts) - min(stats.began for stats in parts)
    return CollectionStats(
        began=min(stats.began for stats in parts),
        wall_s=max(span, *(stats.wall_s for stats in parts)),
        engine_s=sum(stats.engine_s for stats in parts),
        waiting_s=sum(stats.waiting_s for stats in parts),
        world_s=sum(stats.world_s for stats in parts),
        generated_tokens=sum(stats.generated_tokens for stats in parts),
        world_retries=sum(stats.world_retries for stats in parts),
        clocks={name: clock for stats in parts for name, clock in stats.clocks.items()},
        world_faults=sum((stats.world_faults for stats in parts), Counter()),
        end_reasons=sum((stats.end_reasons for stats in parts), Counter()),
        deliveries=[delivery for stats in parts for delivery in stats.deliveries],
    )


Row = dict[str, Any]
CUT = EpisodeEnd(CUT_REASON)


class StepResult(NamedTuple):
    """The result of advancing an episode: a request for a turn, or the end of the episode (already closed)."""

    reached: GenerationRequest | EpisodeEnd
    seconds: float
    """Wall-clock time of the thread."""


class PendingCall(NamedTuple):
    """An episode that is being advanced in a thread."""

    rollout: LiveRollout
    future: Future[StepResult]


class Scheduler:
    """The state of one `play_rollouts`."""

    def __init__(
        self,
        engine: Engine,
        world: World,
        chat: ChatFormat,
        collector: Collector,
        planned: Sequence[PlannedRollout],
        settings: PlaySettings,
        pool: ThreadPoolExecutor,
        stats: CollectionStats,
        on_row: Callable[[int], None],
        rule: LengthRule | None = None,
    ) -> None:
        """`on_row` is called whenever a rollout is over, with the number of all rollouts known by then.

        `rule` is early stop by length; an engine that samples in the background has early stop by the clock.

        A rollout that `collector` adds waits behind all others.
        """
        self._engine, self._world, self._chat, self._collector = engine, world, chat, collector
        self._planned, self._settings, self._pool, self._stats = planned, settings, pool, stats
        self._on_row, self._rule = on_row, rule
        self._limit = math.inf
        self._closing: list[Future[None]] = []
        self._waiting = deque(planned)
        self._known = len(planned)
        self._live: dict[str, LiveRollout] = {}
        self._calls: list[PendingCall] = []
        self._rows: list[Row] = []
        self._wakeup = Event()
        if samples_in_background(engine):
            engine.notify(self._wakeup.set)

    def run(self) -> list[Row]:
        """Play all planned rollouts and those added. Returns a row for each, in the order in which they were over.

        Raises whatever an engine or a world raises, after closing every episode and releasing every conversation.
        """
        started = time.perf_counter()
        try:
            while self._waiting or self._live:
                self._open_episodes()
                generations = self._run_engine()
                if self._rule is None and enough(self._settings.early_stop, self._planned, self._rows):
                    self._cut_the_rest()
                    break
                for generation in generations:
                    self._hand_over(generation)
        finally:
            self._close_all()
            self._stats.wall_s += time.perf_counter() - started
        return self._rows

    def _open_episodes(self) -> None:
        while self._waiting and len(self._live) < self._settings.max_concurrent_episodes:
            rollout = LiveRollout(self._waiting.popleft())
            self._live[rollout.name] = rollout
            self._begin(rollout)

    def _begin(self, rollout: LiveRollout) -> None:
        rollout.episode = self._collector.begin(rollout, self._world, self._chat, self._settings)
        self._let_go_on(rollout, None)

    def _let_go_on(self, rollout: LiveRollout, turn: Generation | None) -> None:
        future = self._pool.submit(go_on, rollout, turn)
        future.add_done_callback(lambda _: self._wakeup.set())
        self._calls.append(PendingCall(rollout, future))

    def _run_engine(self) -> list[Generation]:
        """Run one engine call while worlds work, or wait for either; then handle the episodes that are ready."""
        if samples_in_background(self._engine):
            calls, generations = self._wait_completed(self._engine)
        else:
            generations = self._counted(self._engine.collect)
            calls, self._calls = self._calls, []
        try:
            while calls:
                self._handle_result(calls.pop(0))
        finally:
            self._calls += calls  # after a failure these are still being played: `_close_all` waits for them
        return generations

    def _wait_completed(self, engine: BackgroundEngine) -> tuple[list[PendingCall], list[Generation]]:
        """Wait until any call or turn is done. Returns all that are done."""
        started = time.perf_counter()
        self._wakeup.wait()
        self._wakeup.clear()
        waited = time.perf_counter() - started
        if len(self._calls) == len(self._live):
            self._stats.waiting_s += waited
        else:
            self._stats.engine_s += waited
        done = {call.rollout.name for call in self._calls if call.future.done()}
        completed = [call for call in self._calls if call.rollout.name in done]
        self._calls = [call for call in self._calls if call.rollout.name not in done]
        return completed, self._counted(engine.ready)

    def _counted(self, call: Callable[[], list[Generation]]) -> list[Generation]:
        started = time.perf_counter()
        generations = call()
        self._stats.engine_s += time.perf_counter() - started
        self._stats.generated_tokens += sum(len(generation.token_ids) for generation in generations)
        return generations

    def _handle_result(self, call: PendingCall) -> None:
        rollout, reached = call.rollout, self._result(call)
        if isinstance(reached, GenerationRequest):
            self._submit(rollout, reached)
            return
        self._engine.release(rollout.name)
        broke = reached.end_reason == "world_fault"
        if broke:
            self._stats.count_fault(rollout.name, reached.fault)
        if broke and rollout.retries < self._settings.world_retries:
            rollout.begin_again()
            self._begin(rollout)
        else:
            self._end(rollout, reached)

    def _end(self, rollout: LiveRollout, end: EpisodeEnd) -> None:
        del self._live[rollout.name]
        following = self._collector.after(rollout.planned, end)
        if following is not None:
            self._waiting.append(following)
            self._known += 1
        self._record(rollout, end)

    def _result(self, call: PendingCall) -> GenerationRequest | EpisodeEnd:
        started = time.perf_counter()
        try:
            result = call.future.result()
        except Exception as bug:
            task = call.rollout.planned.task.task_id
            bug.add_note(f"raised by the world in task {task}, rollout {call.rollout.name}")
            raise
        self._stats.waiting_s += time.perf_counter() - started
        self._stats.world_s += result.seconds
        return result.reached

    def _submit(self, rollout: LiveRollout, request: GenerationRequest) -> None:
        """Request a turn."""
        if rollout.transcript.sampled_tokens > self._limit:
            self._give_up(rollout)
            return
        try:
            self._engine.submit(request)
        except ContextOverflow:
            self._let_go_on(rollout, Generation(rollout.name, (), (), "context"))

    def _give_up(self, rollout: LiveRollout) -> None:
        """End a rollout that is longer than early stop allows."""
        self._engine.release(rollout.name)
        self._closing.append(self._pool.submit(rollout.close))
        del self._live[rollout.name]
        self._record(rollout, CUT)

    def _hand_over(self, generation: Generation) -> None:
        """Pass a sampled turn to its episode."""
        self._let_go_on(self._live[generation.sequence_id], generation)

    def _record(self, rollout: LiveRollout, end: EpisodeEnd) -> None:
        self._rows.append(rollout.row(end))
        if self._rule is not None:
            self._rule.add(self._rows[-1])
            self._limit = self._rule.limit()
        self._stats.end_reasons[end.end_reason] += 1
        self._stats.world_retries += rollout.retries
        self._stats.clocks[rollout.name] = rollout.clock
        self._on_row(self._known)

    def _cut_the_rest(self) -> None:
        """Record rollouts that are in progress or not begun, as they stand."""
        for call in self._calls:
            self._result(call)
        for rollout in (*self._live.values(), *map(LiveRollout, self._waiting)):
            self._record(rollout, CUT)

    def _close_all(self) -> None:
        """Close every open episode and release its conversation.

        Waits first, so that no thread is still playing one.
        """
        wait([call.future for call in self._calls])
        closing = [self._pool.submit(rollout.close) for rollout in self._live.values()]
        for name in self._live:
            self._engine.release(name)
        for closed in (*closing, *self._closing):
            closed.result()


def go_on(rollout: LiveRollout, turn: Generation | None) -> StepResult:
    """Begin an episode, or advance it by a sampled turn.

    A world fault ends the episode; any other exception is raised.
    """
    started, episode = time.perf_counter(), rollout.episode
    assert episode is not None
    reached: GenerationRequest | EpisodeEnd
    try:
        reached = next(episode) if turn is None else episode.send(turn)
    except StopIteration as over:
        reached = over.value
    except WorldFault as broke:
        reached = EpisodeEnd("world_fault", fault=str(broke))
    rollout.clock.append(time.time())
    return StepResult(reached, time.perf_counter() - started)


def enough(stop: EarlyStop | None, planned: Sequence[PlannedRollout], rows: Sequence[Row]) -> bool:
    """Return whether every task, and the collection, has enough finished rollouts; void rollouts don't count."""
    if stop is None:
        return False
    finished = Counter(row["task_id"] for row in rows if row["end_reason"] not in VOID_REASONS)
    if finished.total() < stop.share * len(planned):
        return False
    return all(finished[rollout.task.task_id] >= stop.min_per_task for rollout in planned)
