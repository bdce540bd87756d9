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
    """Everything random in this rollout is drawn from streams derived from this seed."""
    temperature: float | None = None
    """None: that of all rollouts."""
    world_seed: int | None = None
    """Seed of what is random in the world; None: a stream of `seed`, another one after every retry."""
    tree_seed: int | None = None
    """Seed of the searched tree of which this is a simulation."""

    @property
    def name(self) -> str:
        return f"{self.task.task_id}#{self.rollout_index}"


def draw_tasks(tasks: Sequence[Task], weights: Sequence[float], count: int, seed: int) -> list[Task]:
    """Draw `count` tasks with probabilities proportional to `weights`, none twice as long as there are enough.

    With fewer tasks than `count`, all are taken as often as they go into it, and the rest is drawn. Raises ValueError
    when no task has a weight above 0.
    """
    candidates = _with_weight(tasks, weights)
    probabilities = np.array([weight for _, weight in candidates], dtype=np.float64)
    rounds, rest = divmod(count, len(candidates))
    drawn = [task for _ in range(rounds) for task, _ in candidates]
    chosen = _generator(seed).choice(len(candidates), size=rest, replace=False, p=probabilities / probabilities.sum())
    return drawn + [candidates[index][0] for index in chosen]


def deal_tasks(tasks: Sequence[Task], weights: Sequence[float], count: int, seed: int, *, dealt: int) -> list[Task]:
    """The `count` tasks that follow the first `dealt` ones of the endless sequence that `seed` stands for.

    For each the difficulty is drawn, as likely as the weights of its tasks together; then comes the next task of that
    difficulty's shuffled deck, which is shuffled anew when it is used up (apple/ml-loop: MixtureAppWorldScenarioSampler
    over one AppWorldScenarioSampler for each difficulty, there without a seed and apart for every rank). Raises
    ValueError when no task has a weight above 0.
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
    places = np.searchsorted(bounds[:-1] / bounds[-1], _generator(seed).random(count), side="right")
    return [levels[place] for place in places]


def _card(deck: Sequence[Task], number: int, seed: int) -> Task:
    """Card `number` of a deck that is shuffled whenever all its cards were dealt."""
    shuffle, place = divmod(number, len(deck))
    return deck[int(_generator(derive_seed(seed, shuffle)).permutation(len(deck))[place])]


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
    """`rollouts_per_task` rollouts of every task, each with its own seed; a task given twice gets twice as many.

    They come round by round, so that no task is behind the others when collection stops early. A rollout's seed depends
    on `seed`, its task and its index alone, so that two policies played with one seed meet the same draws. A task's
    rollouts take `temperatures` in turn.
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
