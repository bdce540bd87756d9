"""One rollout in play, and the jobs that its world does for it in a thread pool."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tasks.core.interfaces.world import Episode, Evaluation, ExecutionTimeout, Message, Observation, World, WorldFault
from tasks.core.seeding import derive_seed
from tasks.rollout_collection.planning import PlannedRollout
from tasks.rollout_collection.transcript import Transcript


@dataclass
class LiveRollout:
    """A rollout that is being played. One thread at a time has hold of it."""

    planned: PlannedRollout
    episode: Episode | None = None
    transcript: Transcript = field(default_factory=Transcript)
    messages: list[Message] = field(default_factory=list)
    """The same conversation as text, observations cut alike."""
    retries: int = 0
    turn_closed: bool = False
    """The last sampled turn ended with a stop token."""

    @property
    def name(self) -> str:
        return self.planned.name

    def seed(self, *names: str | int) -> int:
        """The seed of a stream of this rollout; another one after every retry."""
        return derive_seed(self.planned.seed, self.retries, *names)

    def begin_again(self) -> None:
        """After a world fault: forget what was played."""
        self.retries += 1
        self.episode, self.transcript, self.messages, self.turn_closed = None, Transcript(), [], False

    def close(self) -> None:
        if self.episode is not None:
            self.episode.close()

    def row(self, end_reason: str, evaluation: Evaluation | None) -> dict[str, Any]:
        """The row of `schemas.PLAYED_ROLLOUTS`, without what the whole collection has in common (policy, engine)."""
        task, completed = self.planned.task, end_reason == "completed"
        return {
            "task_id": task.task_id,
            "scenario_id": task.scenario_id,
            "split": task.split,
            "difficulty": task.difficulty,
            "rollout_index": self.planned.rollout_index,
            "seed": self.planned.seed,
            **vars(self.transcript),
            "return": evaluation.pass_share if evaluation and completed else 0.0,
            "success": evaluation.success if evaluation and completed else False,
            "tests_passed": list(evaluation.passed) if evaluation else [],
            "tests_failed": list(evaluation.failed) if evaluation else [],
            "end_reason": end_reason,
            "world_retries": self.retries,
        }


@dataclass
class Answer:
    """What a job brought back."""

    observation: Observation | None = None
    """None for a job that played no turn."""
    evaluation: Evaluation | None = None
    end_reason: str | None = None
    """Set when the episode is over (and closed)."""
    seconds: float = 0.0


Job = Callable[[LiveRollout], Answer]


def work(job: Job, rollout: LiveRollout) -> Answer:
    """Run a job; a world fault becomes its answer, and an episode that is over is closed."""
    started = time.perf_counter()
    try:
        answer = job(rollout)
    except WorldFault:
        answer = Answer(end_reason="world_fault")
    if answer.end_reason is not None:
        rollout.close()
    answer.seconds = time.perf_counter() - started
    return answer


def opening(world: World) -> Job:
    """The job that opens the rollout's episode."""

    def job(rollout: LiveRollout) -> Answer:
        rollout.episode = world.open(rollout.planned.task.task_id, rollout.seed("world"))
        return Answer()

    return job


def stepping(text: str, last: bool) -> Job:
    """The job that plays one assistant turn; `last` says that the turn limit allows no further one."""

    def job(rollout: LiveRollout) -> Answer:
        episode = _opened(rollout)
        try:
            observation = episode.step(text)
        except ExecutionTimeout:
            return Answer(Observation(text="", done=True, failed=True), end_reason="execution_timeout")
        if not (observation.done or last):
            return Answer(observation)
        return Answer(observation, episode.evaluate(), "completed" if observation.done else "turn_limit")

    return job


def out_of_context(rollout: LiveRollout) -> Answer:
    """The job that ends an episode whose conversation has outgrown the context window."""
    return Answer(evaluation=_opened(rollout).evaluate(), end_reason="context_limit")


def _opened(rollout: LiveRollout) -> Episode:
    assert rollout.episode is not None
    return rollout.episode
