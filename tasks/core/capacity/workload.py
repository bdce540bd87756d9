"""Episodes and tokens of a profile."""

from dataclasses import dataclass

from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS, Split
from tasks.core.config.stage_inputs import MemoryInputs, ScoringInputs
from tasks.core.config.update import PAIRED
from tasks.core.config.world import PocketworldSection

SPLIT_TASKS: dict[Split, int] = {"dev": 60, "test_normal": 168, "test_challenge": 417}
"""Tasks of pocketworld's splits, and of AppWorld's official splits except for 3 unusable dev tasks."""
KEPT_SHARE = 0.6
"""Share of the finished rollouts to train on (assumed; 0.94 to 0.2 over 90 iterations of the embedded policy)."""
PROMPT_ALLOWANCE = 8192
"""Tokens assumed at most for an opening prompt."""
SPREAD = 2.0
"""Length of a batch's longest episodes over the mean length: while they last, everything else waits (assumed)."""


@dataclass(frozen=True)
class Episodes:
    """The mean episode of a world, in the policy's tokens."""

    prompt: float
    turns: float
    sampled_per_turn: float
    observed_per_turn: float
    turn_s: float
    """The world's own time per turn, on one core."""
    source: str

    @property
    def sampled(self) -> float:
        return self.turns * self.sampled_per_turn

    @property
    def tokens(self) -> float:
        return self.prompt + self.sampled + self.turns * self.observed_per_turn


EPISODES = {
    "pocketworld": Episodes(29, 2.41, 19.6, 15.7, 0.0085, "tests/benchmarks/results/rollouts.json"),
    "appworld": Episodes(
        2500, 18, 120, 350, 0.1, "assumed; turn time: tests/benchmarks/results/appworld_episodes.json"
    ),
    "bfcl": Episodes(9000, 10, 60, 120, 0.01, "assumed; prompts: the package's, 20 to 51 thousand characters"),
    # The games' limits of turns and actions are in their config; the tokens of a policy are assumed.
    "bandit": Episodes(150, 1, 40, 20, 0.0001, "assumed"),
    "frozen_lake": Episodes(250, 4, 40, 60, 0.0001, "assumed"),
    "sokoban": Episodes(300, 4, 40, 80, 0.0001, "assumed"),
    "webshop": Episodes(400, 6, 40, 500, 0.001, "assumed"),
    "scienceworld": Episodes(600, 40, 40, 120, 0.02, "assumed"),
    "openenv": Episodes(600, 10, 40, 120, 0.01, "assumed; the server decides"),
}


@dataclass(frozen=True)
class Workload:
    """Episodes and tokens of one profile."""

    episodes: Episodes
    collected: int
    """Rollouts of one iteration."""
    kept: float
    """Rollouts among these that are trained on."""
    iterations: int
    collections: int
    """Iterations that collect their own rollouts (`collection.every`)."""
    evaluations: int
    evaluated: int
    """Rollouts of one evaluation."""
    scored: int
    """Rollouts of all scoring, at every budget."""

    @property
    def rollouts(self) -> int:
        """Return all rollouts of the run."""
        return self.collected * self.collections + self.evaluated * self.evaluations + self.scored

    @property
    def tokens(self) -> float:
        """Return all tokens of the run, read and sampled."""
        return self.rollouts * self.episodes.tokens


def plays_of_a_test_split(params: Params) -> int:
    """Return how often scoring plays a test split: once for each policy and budget.

    An untrained run has only the base.
    """
    return (2 if params.iterations else 1) * (1 + ScoringInputs.of(params).plays_again)


def workload(params: Params, episodes: Episodes | None = None, kept_share: float = KEPT_SHARE) -> Workload:
    """Return the workload of a profile. `episodes` None: the world's own from `EPISODES`; `kept_share` trains.

    Raises ValueError for a world without a mean episode.
    """
    mean = episodes or EPISODES.get(params.world.name)
    if mean is None:
        raise ValueError(
            f"world.name: no mean episode of {params.world.name} is known (tasks/core/capacity/workload.py)"
        )
    tree = params.collection.tree
    episodes_per_task = params.collection.rollouts_per_task if tree is None else tree.simulations
    collected = params.collection.tasks_per_iteration * episodes_per_task
    splits = sum(_tasks(params, split, params.scoring.scenarios) for split in TEST_SPLITS)
    return Workload(
        episodes=mean,
        collected=collected,
        kept=kept_share * collected,
        iterations=params.iterations,
        collections=len(params.dag.sampled),
        evaluations=len(params.dag.evaluated),
        evaluated=_tasks(params, "dev", params.evaluation.scenarios) * params.evaluation.rollouts_per_task,
        scored=splits * params.scoring.rollouts_per_task * plays_of_a_test_split(params),
    )


def longest_rollout(inputs: MemoryInputs, context_length: int) -> int:
    """Return the tokens that a rollout may have at most.

    The limit is the context (of the model, or of the servers that sample), or what its turns and a long prompt can
    fill.
    """
    limits, served = inputs.limits, inputs.served_context
    if inputs.engine == "vllm" and served is not None:
        context_length = min(context_length, served)
    turn = limits.max_tokens_per_turn + limits.max_observation_tokens
    return min(context_length, PROMPT_ALLOWANCE + limits.max_turns * turn)


def longest_pack(inputs: MemoryInputs, context_length: int) -> int:
    """Return the positions of the learner's largest forward pass: a full pack, or one longer rollout or pair."""
    whole = 2 if inputs.objective in PAIRED else 1
    return max(inputs.tokens_per_pack, whole * longest_rollout(inputs, context_length))


def _tasks(params: Params, split: Split, scenarios: int | None) -> int:
    world = params.world
    scale = world.pocketworld.scale if isinstance(world, PocketworldSection) else 1
    tasks = int(getattr(world.settings.task_counts, split, scale * SPLIT_TASKS[split]))
    return tasks if scenarios is None else min(tasks, 3 * scenarios)
