"""One rollout in play: its attempts, and its row when it is over."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from tasks.core.interfaces.engine import Generation, GenerationRequest
from tasks.core.interfaces.world import Evaluation
from tasks.core.rollouts.planning import PlannedRollout
from tasks.core.rollouts.transcript import Transcript
from tasks.core.seeding import derive_seed


@dataclass(frozen=True)
class EpisodeEnd:
    """The end of an episode, and the verdict if the world was asked for one."""

    end_reason: str
    """One of `schemas.END_REASONS`."""
    evaluation: Evaluation | None = None
    counts: bool = False
    """Whether the verdict is the rollout's return and success; else they are 0 and False."""
    fault: str = ""
    """The world's words when it broke. No column of rollouts: it may name processes and times."""

    @property
    def episode_return(self) -> float:
        """The rollout's return."""
        return self.evaluation.episode_return if self.evaluation is not None and self.counts else 0.0


EpisodeSteps = Generator[GenerationRequest, Generation, EpisodeEnd]
"""An episode that is being played: yields the turns that it wants sampled, and is sent them."""


@dataclass
class LiveRollout:
    """A rollout that is being played. One thread at a time has hold of it."""

    planned: PlannedRollout
    episode: EpisodeSteps | None = None
    """The present attempt."""
    transcript: Transcript = field(default_factory=Transcript)
    retries: int = 0
    clock: list[float] = field(default_factory=list)
    """When the present attempt was opened, and when each of its turns had its answer: seconds since the epoch."""

    @property
    def name(self) -> str:
        return self.planned.name

    def seed(self, *names: str | int) -> int:
        """The seed of a stream of this rollout; another one after every retry."""
        return derive_seed(self.planned.seed, self.retries, *names)

    @property
    def world_seed(self) -> int:
        """The seed of what is random in the world."""
        fixed = self.planned.world_seed
        return self.seed("world") if fixed is None else fixed

    def begin_again(self) -> None:
        """Forget what was played, after a world fault."""
        self.retries += 1
        self.transcript = Transcript()
        self.clock = []

    def close(self) -> None:
        """Close the episode. No thread may be playing it."""
        if self.episode is not None:
            self.episode.close()

    def row(self, end: EpisodeEnd) -> dict[str, Any]:
        """The row of `schemas.PLAYED_ROLLOUTS`, without what the whole collection has in common (policy, engine)."""
        task, evaluation = self.planned.task, end.evaluation
        return {
            "task_id": task.task_id,
            "scenario_id": task.scenario_id,
            "split": task.split,
            "difficulty": task.difficulty,
            "rollout_index": self.planned.rollout_index,
            "seed": self.planned.seed,
            **self.transcript.columns(),
            "return": end.episode_return,
            "success": evaluation is not None and end.counts and evaluation.success,
            "tests_passed": list(evaluation.passed) if evaluation else [],
            "tests_failed": list(evaluation.failed) if evaluation else [],
            "end_reason": end.end_reason,
            "world_retries": self.retries,
        }
