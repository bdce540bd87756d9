"""The rollouts that an iteration plays: the tasks drawn for it, and a seed for each rollout."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tasks.core.config.collection import AgentLimits, CollectionConfig, EarlyStop
from tasks.core.config.evaluation import EvaluationConfig, ScoringConfig
from tasks.core.config.stage_inputs import CollectionInputs, PlayInputs
from tasks.core.interfaces.world import Task
from tasks.core.seeding import derive_seed


@dataclass(frozen=True)
class PlaySettings:
    """Settings for playing rollouts. Picklable.

    Training uses temperature 1 and early stop; evaluation a low temperature and no early stop.
    """

    temperature: float
    limits: AgentLimits
    max_concurrent_episodes: int
    """How many episodes are open at once; the next episode opens when another ends."""
    world_retries: int
    """How often a rollout is played again after its world broke."""
    early_stop: EarlyStop | None = None
    judge_unfinished: bool = False
    """Whether the verdict counts for an episode that ran out of turns or context."""
    top_k: int = 0
    top_p: float = 1.0
    """As in `SamplingSettings`; training samples from the whole distribution."""
    turn_progress: bool = False
    """Whether the task's unit tests are run after every turn."""

    @classmethod
    def of(cls, inputs: PlayInputs | CollectionConfig, temperature: float) -> "PlaySettings":
        """Return the settings that all stages which play have in common, without early stop."""
        return cls(
            temperature=temperature,
            limits=inputs.limits,
            max_concurrent_episodes=inputs.max_concurrent_episodes,
            world_retries=inputs.world_retries,
            judge_unfinished=inputs.judge_unfinished,
        )

    @classmethod
    def of_training(cls, inputs: CollectionInputs | CollectionConfig) -> "PlaySettings":
        """Return the settings of rollouts to train on."""
        shared = cls.of(inputs, inputs.temperature)
        return replace(shared, early_stop=inputs.early_stop, turn_progress=inputs.turn_progress)

    @classmethod
    def of_evaluation(
        cls, inputs: PlayInputs, config: EvaluationConfig | ScoringConfig, limits: AgentLimits
    ) -> "PlaySettings":
        """Return an evaluation's sampling and limits; concurrent episodes and retries are those of collection."""
        shared = cls.of(inputs, config.temperature)
        return replace(shared, limits=limits, top_k=config.top_k, top_p=config.top_p)


@dataclass(frozen=True)
class PlannedRollout:
    """One episode to be played."""

    task: Task
    rollout_index: int
    seed: int
    """All randomness of this rollout comes from streams derived from this seed."""
    temperature: float | None = None
    """None: the temperature of `PlaySettings`."""
    world_seed: int | None = None
    """Seed of everything random in the world; None: a stream of `seed` that changes with every retry."""
    tree_seed: int | None = None
    """Seed of the tree that this rollout is a simulation of."""

    @property
    def name(self) -> str:
        return f"{self.task.task_id}#{self.rollout_index}"


def draw_tasks(tasks: Sequence[Task], weights: Sequence[float], count: int, seed: int) -> list[Task]:
    """Draw `count` tasks with probabilities proportional to `weights`, none twice while there are enough.

    With fewer tasks than `count`, take each task as often as the set fits into `count` whole, and draw the rest. Raises
    ValueError when no task has a weight above 0.
    """
    candidates = _with_weight(tasks, weights)
    probabilities = np.array([weight for _, weight in candidates], dtype=np.float64)
    rounds, rest = divmod(count, len(candidates))
    drawn = [task for _ in range(rounds) for task, _ in candidates]
    chosen = _generator(seed).choice(len(candidates), size=rest, replace=False, p=probabilities / probabilities.sum())
    return drawn + [candidates[index][0] for index in chosen]


def deal_tasks(tasks: Sequence[Task], weights: Sequence[float], count: int, seed: int, *, dealt: int) -> list[Task]:
    """Return the next `count` tasks, after the first `dealt`, of the endless sequence that `seed` defines.

    Each deal draws a difficulty with probability proportional to the summed weights of its tasks, then takes the next
    task of that difficulty's shuffled deck. A used-up deck is shuffled again (apple/ml-loop:
    MixtureAppWorldScenarioSampler over one AppWorldScenarioSampler per difficulty; there without a seed and separately
    on every rank). Raises ValueError when no task has a weight above 0.
    """
    decks: dict[int, list[Task]] = {}
    likelihood: dict[int, float] = {}
    for task, weight in _with_weight(tasks, weights):
        decks.setdefault(task.difficulty, []).append(task)
        likelihood[task.difficulty] = likelihood.get(task.difficulty, 0.0) + weight
    levels = _draw_levels(likelihood, dealt + count, derive_seed(seed, "difficulties"))
    taken = Counter(levels[:dealt])
    drawn = []
    for level in levels[dealt:]:
        drawn.append(_card(decks[level], taken[level], derive_seed(seed, "deck", level)))
        taken[level] += 1
    return drawn


def _draw_levels(likelihood: Mapping[int, float], count: int, seed: int) -> list[int]:
    levels = sorted(likelihood)
    bounds = np.cumsum([likelihood[level] for level in levels])
    indices = np.searchsorted(bounds[:-1] / bounds[-1], _generator(seed).random(count), side="right")
    return [levels[index] for index in indices]


def _card(deck: Sequence[Task], number: int, seed: int) -> Task:
    """Return card `number` of a deck that is shuffled again each time it is used up."""
    shuffle, position = divmod(number, len(deck))
    return deck[int(_generator(derive_seed(seed, shuffle)).permutation(len(deck))[position])]


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def _with_weight(tasks: Sequence[Task], weights: Sequence[float]) -> list[tuple[Task, float]]:
    candidates = [(task, weight) for task, weight in zip(tasks, weights, strict=True) if weight > 0]
    if not candidates:
        raise ValueError("no training task has a weight above 0: see the `tasks` section of params.yaml")
    return candidates


def plan_rollouts(
    tasks: Sequence[Task], rollouts_per_task: int, seed: int, temperatures: Sequence[float] = ()
) -> list[PlannedRollout]:
    """Plan `rollouts_per_task` rollouts of every task, each with its own seed; a task given twice gets twice as many.

    They are ordered round by round, so that no task lags behind when collection stops early. A rollout's seed depends
    only on `seed`, its task and its index, so two policies played with the same seed meet the same draws. A task's
    rollouts cycle through `temperatures`.
    """
    planned: dict[str, int] = {}
    rollouts: list[PlannedRollout] = []
    for task in tasks:
        first = planned.get(task.task_id, 0)
        planned[task.task_id] = first + rollouts_per_task
        for index in range(first, first + rollouts_per_task):
            temperature = temperatures[index % len(temperatures)] if temperatures else None
            rollouts.append(PlannedRollout(task, index, derive_seed(seed, task.task_id, index), temperature))
    return sorted(rollouts, key=lambda planned: planned.rollout_index)
