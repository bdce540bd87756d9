"""The agent loop: many episodes at once, each a conversation between the policy (an engine) and a world.

The order of all work depends on the seeds alone when the engine's does: episodes are stepped in a thread pool, but what
they answer is taken up one engine call later and in a fixed order, so that neither the order of rows nor the make-up of
a batch depends on the clock. An engine that samples in the background is sent an episode's next turn as soon as the
observation is there; when its turns end is up to the clock.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from typing import Any

from tqdm import tqdm

from tasks.core.config.collection import AgentLimits, EarlyStop
from tasks.core.interfaces.engine import (
    ContextOverflow,
    Engine,
    Generation,
    GenerationRequest,
    SamplingSettings,
    samples_in_background,
)
from tasks.core.interfaces.world import Evaluation, Observation, World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.schemas import VOID_REASONS
from tasks.rollout_collection.collection_stats import CollectionStats
from tasks.rollout_collection.live_rollout import Answer, Job, LiveRollout, opening, out_of_context, stepping, work
from tasks.rollout_collection.observation import shown_observation
from tasks.rollout_collection.planning import PlannedRollout

Asked = tuple[LiveRollout, Future[Answer]]
"""A rollout and the job that its world does for it."""


@dataclass(frozen=True)
class PlaySettings:
    """How episodes are played. Training: temperature 1 and early stop; evaluation: low temperature, no early stop."""

    temperature: float
    limits: AgentLimits
    max_concurrent_episodes: int
    """How many episodes are open at once; the next one opens when one ends."""
    world_retries: int
    early_stop: EarlyStop | None = None


class AgentLoop:
    """The state of one `play_rollouts`."""

    def __init__(
        self,
        resources: tuple[World, Engine, ChatFormat],
        planned: Sequence[PlannedRollout],
        settings: PlaySettings,
        origin: dict[str, str],
        stats: CollectionStats,
        pool: ThreadPoolExecutor,
        bar: "tqdm[Any]",
    ) -> None:
        self._world, self._engine, self._chat = resources
        self._planned, self._settings, self._origin, self._stats = planned, settings, origin, stats
        self._pool, self._bar = pool, bar
        self._pending = deque(planned)
        self._live: dict[str, LiveRollout] = {}
        self._cut_off: list[LiveRollout] = []
        self._jobs: list[Asked] = []
        self._rows: list[dict[str, Any]] = []
        self._news = Event()
        if samples_in_background(self._engine):
            self._engine.notify(self._news.set)

    def run(self) -> list[dict[str, Any]]:
        started = time.perf_counter()
        try:
            while self._pending or self._live:
                self._tick()
        finally:
            self._close_all()
            self._stats.wall_s += time.perf_counter() - started
        return sorted(self._rows, key=lambda row: (row["task_id"], row["rollout_index"]))

    def _tick(self) -> None:
        """One engine call beside the world's work; then take up what the world answered, in the order it was asked."""
        self._refill()
        asked, generations = self._next_news() if samples_in_background(self._engine) else self._in_step()
        for rollout, job in asked:
            self._take_up(rollout, self._await(rollout, job))
        if self._may_stop():
            self._cut()
            return
        for generation in generations:
            self._play(self._live[generation.sequence_id], generation)

    def _in_step(self) -> tuple[list[Asked], list[Generation]]:
        """All jobs asked so far, and what one engine call brings."""
        asked, self._jobs = self._jobs, []
        return asked, self._counted(self._engine.collect)

    def _next_news(self) -> tuple[list[Asked], list[Generation]]:
        """The jobs and the turns that are done, as soon as any is."""
        engine, started = self._engine, time.perf_counter()
        assert samples_in_background(engine)
        self._news.wait()
        self._news.clear()
        waited = time.perf_counter() - started
        if len(self._jobs) == len(self._live):
            self._stats.waiting_s += waited
        else:
            self._stats.engine_s += waited
        done = [job.done() for _, job in self._jobs]
        asked = [one for one, over in zip(self._jobs, done, strict=True) if over]
        self._jobs = [one for one, over in zip(self._jobs, done, strict=True) if not over]
        return asked, self._counted(engine.ready)

    def _refill(self) -> None:
        while self._pending and len(self._live) < self._settings.max_concurrent_episodes:
            rollout = LiveRollout(self._pending.popleft())
            self._live[rollout.name] = rollout
            self._ask(rollout, opening(self._world))

    def _ask(self, rollout: LiveRollout, job: Job) -> None:
        future = self._pool.submit(work, job, rollout)
        future.add_done_callback(lambda _: self._news.set())
        self._jobs.append((rollout, future))

    def _await(self, rollout: LiveRollout, job: "Future[Answer]") -> Answer:
        started = time.perf_counter()
        try:
            answer = job.result()
        except Exception as bug:
            bug.add_note(f"raised by the world in task {rollout.planned.task.task_id}, rollout {rollout.name}")
            raise
        self._stats.waiting_s += time.perf_counter() - started
        self._stats.world_s += answer.seconds
        return answer

    def _counted(self, call: Callable[[], list[Generation]]) -> list[Generation]:
        started = time.perf_counter()
        generations = call()
        self._stats.engine_s += time.perf_counter() - started
        self._stats.generated_tokens += sum(len(generation.token_ids) for generation in generations)
        return generations

    def _play(self, rollout: LiveRollout, generation: Generation) -> None:
        """Hand a sampled turn to the world."""
        if generation.stop_reason == "context":
            self._ask(rollout, out_of_context)
            return
        rollout.transcript.add_turn(generation)
        rollout.turn_closed = generation.stop_reason == "stop"
        text = self._chat.decode(generation.token_ids[:-1] if rollout.turn_closed else generation.token_ids)
        rollout.messages.append({"role": "assistant", "content": text})
        last = rollout.transcript.sampled_turns == self._settings.limits.max_turns
        self._ask(rollout, stepping(text, last))

    def _take_up(self, rollout: LiveRollout, answer: Answer) -> None:
        if answer.observation is not None:
            rollout.transcript.add_reply(answer.observation)
        if answer.end_reason is None:
            self._continue(rollout, self._context(rollout, answer.observation))
        elif answer.end_reason == "world_fault" and rollout.retries < self._settings.world_retries:
            self._engine.release(rollout.name)
            rollout.begin_again()
            self._ask(rollout, opening(self._world))
        else:
            self._finish(rollout, answer.end_reason, answer.evaluation)

    def _context(self, rollout: LiveRollout, observation: Observation | None) -> list[int]:
        """The ids that come before the next sampled turn: the observation's or the opening ones. Notes the messages."""
        if observation is None:
            assert rollout.episode is not None
            rollout.messages += rollout.episode.prompt
            return self._chat.prompt_ids(rollout.episode.prompt)
        limit, closed = self._settings.limits.max_observation_tokens, rollout.turn_closed
        shown = shown_observation(self._chat, observation.text, observation.ending, closed=closed, max_tokens=limit)
        rollout.messages.append({"role": "user", "content": shown.text})
        return shown.ids

    def _continue(self, rollout: LiveRollout, context: list[int]) -> None:
        """Ask the engine for the next turn. Context that leaves no room for one was never seen, so it is not kept."""
        settings, transcript = self._settings, rollout.transcript
        sampling = SamplingSettings(settings.temperature, settings.limits.max_tokens_per_turn, self._chat.stop_ids)
        request = GenerationRequest(
            rollout.name,
            transcript.token_ids + context,
            sampling,
            rollout.seed("turn", transcript.sampled_turns),
            rollout.planned.task.task_id,
            tuple(rollout.messages),
        )
        try:
            self._engine.submit(request)
        except ContextOverflow:
            self._ask(rollout, out_of_context)
        else:
            transcript.add_context(context)

    def _finish(self, rollout: LiveRollout, end_reason: str, evaluation: Evaluation | None) -> None:
        self._engine.release(rollout.name)
        del self._live[rollout.name]
        self._record(rollout, end_reason, evaluation)

    def _record(self, rollout: LiveRollout, end_reason: str, evaluation: Evaluation | None) -> None:
        self._rows.append({**rollout.row(end_reason, evaluation), **self._origin})
        self._stats.end_reasons[end_reason] += 1
        self._stats.world_retries += rollout.retries
        self._bar.set_postfix_str(f"{self._stats.tokens_per_s:,.0f} tok/s", refresh=False)
        self._bar.update()

    def _may_stop(self) -> bool:
        """Every task has enough finished rollouts, and enough of all are in (void ones are not)."""
        stop = self._settings.early_stop
        if stop is None:
            return False
        finished = Counter(row["task_id"] for row in self._rows if row["end_reason"] not in VOID_REASONS)
        if finished.total() < stop.share * len(self._planned):
            return False
        return all(finished[rollout.task.task_id] >= stop.min_per_task for rollout in self._planned)

    def _cut(self) -> None:
        """Record what is still being played, or was never begun, as it stands."""
        for rollout, job in self._jobs:
            self._await(rollout, job)
        for rollout in list(self._live.values()):
            self._cut_off.append(rollout)
            self._finish(rollout, "cut_by_early_stop", None)
        while self._pending:
            self._record(LiveRollout(self._pending.popleft()), "cut_by_early_stop", None)

    def _close_all(self) -> None:
        """Close every episode that is still open and forget its conversation; no job is running on it any more."""
        wait([job for _, job in self._jobs])
        for rollout in self._live.values():
            self._engine.release(rollout.name)
        for closed in [self._pool.submit(rollout.close) for rollout in (*self._live.values(), *self._cut_off)]:
            closed.result()
