"""Episodes and tokens of a profile, and what they cost behind an API."""

from dataclasses import dataclass
from typing import NamedTuple

from tasks.core.config.engine import Rates
from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS, Split
from tasks.core.config.stage_inputs import MemoryInputs, ScoringInputs
from tasks.core.config.world_settings import MeanEpisode

PROMPT_ALLOWANCE = 8192
"""Tokens assumed at most for an opening prompt."""


@dataclass(frozen=True)
class Workload:
    """Episodes and tokens of one profile."""

    episodes: MeanEpisode
    collected: int
    """Rollouts of one iteration."""
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


def workload(params: Params, episodes: MeanEpisode | None = None) -> Workload:
    """Return the workload of a profile. `episodes` None: the world's own mean.

    Raises ValueError for a world without a mean episode or numbers of tasks.
    """
    mean = episodes or params.world.settings.mean_episode
    if mean is None:
        raise ValueError(f"world.name: {params.world.name} says nothing of its `mean_episode` (its WorldSettings)")
    tree = params.collection.tree
    episodes_per_task = params.collection.rollouts_per_task if tree is None else tree.simulations
    collected = params.collection.tasks_per_iteration * episodes_per_task
    plays = (2 if params.iterations else 1) * (1 + ScoringInputs.of(params).plays_again)  # once a policy and budget
    splits = sum(_tasks(params, split, params.scoring.scenarios) for split in TEST_SPLITS)
    return Workload(
        episodes=mean,
        collected=collected,
        iterations=params.iterations,
        collections=len(params.dag.sampled),
        evaluations=len(params.dag.evaluated),
        evaluated=_tasks(params, "dev", params.evaluation.scenarios) * params.evaluation.rollouts_per_task,
        scored=splits * params.scoring.rollouts_per_task * plays,
    )


class ApiCost(NamedTuple):
    """Tokens as our tokenizer counts them (the provider's counts differ), dollars without a cache, and minutes.

    Minutes are those that the rate limits alone require.
    """

    requests: int
    prompt_tokens: float
    answer_tokens: float
    usd: float
    minutes: float


def api_cost(load: Workload, rates: Rates) -> ApiCost:
    """Return the cost of all episodes of a run, every turn of which sends the whole conversation again."""
    mean, rollouts = load.episodes, load.rollouts
    per_turn = mean.sampled_per_turn + mean.observed_per_turn
    requests = mean.turns * rollouts
    prompt = requests * (mean.prompt + per_turn * (mean.turns - 1) / 2)
    answer = rollouts * mean.sampled
    by_requests = requests / rates.requests_per_minute if rates.requests_per_minute else 0.0
    by_tokens = (prompt + answer) / rates.tokens_per_minute if rates.tokens_per_minute else 0.0
    usd = rates.cost_usd(round(prompt), 0, round(answer))
    return ApiCost(round(requests), prompt, answer, usd, max(by_requests, by_tokens))


def longest_rollout(inputs: MemoryInputs, context_length: int) -> int:
    """Return the tokens that a rollout may have at most.

    The limit is the context (of the model, or of the servers that sample), or what its turns and a long prompt can
    fill.
    """
    limits, served = inputs.limits, inputs.engine.kind.context_length(inputs.engine.own)
    if served is not None:
        context_length = min(context_length, served)
    turn = limits.max_tokens_per_turn + limits.max_observation_tokens
    return min(context_length, PROMPT_ALLOWANCE + limits.max_turns * turn)


def longest_pack(inputs: MemoryInputs, context_length: int) -> int:
    """Return the positions of the learner's largest forward pass: a full pack, or one longer rollout."""
    return max(inputs.tokens_per_pack, longest_rollout(inputs, context_length))


def _tasks(params: Params, split: Split, scenarios: int | None) -> int:
    counts = params.world.settings.task_counts
    if counts is None:
        raise ValueError(f"world.name: {params.world.name} says nothing of its `task_counts` (its WorldSettings)")
    return (
        counts[split] if scenarios is None else min(counts[split], params.world.settings.scenario_sizes[0] * scenarios)
    )
