"""Settings by which the rollouts of one collection, evaluation or scoring are played."""

from dataclasses import dataclass

from tasks.core.config.collection import AgentLimits, EarlyStop


@dataclass(frozen=True)
class PlaySettings:
    """Training: temperature 1 and early stop; evaluation: low temperature, no early stop. Picklable."""

    temperature: float
    limits: AgentLimits
    max_concurrent_episodes: int
    """How many episodes are open at once; the next one opens when one ends."""
    world_retries: int
    """How often a rollout whose world broke is played again."""
    early_stop: EarlyStop | None = None
    judge_unfinished: bool = False
    """Whether the verdict on an episode that ran out of turns or context counts."""
    top_k: int = 0
    top_p: float = 1.0
    """As in `SamplingSettings`; training samples from the whole distribution."""
    turn_progress: bool = False
    """Whether the task's unit tests are run after every turn."""
