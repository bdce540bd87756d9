"""Cost of scoring a model behind an API: every turn sends the whole conversation again."""

from dataclasses import dataclass

from tasks.core.capacity.workload import Workload
from tasks.core.config.engine import Rates


@dataclass(frozen=True)
class ApiCost:
    """Tokens as our tokenizer counts them; the provider's counts differ."""

    requests: int
    prompt_tokens: float
    answer_tokens: float
    usd: float
    """Cost at the prices of the params, without caching."""
    minutes: float
    """Minutes that the rate limits of the params alone require; 0 without limits."""


def api_cost(load: Workload, rates: Rates) -> ApiCost:
    """Return requests, tokens, money and time of all episodes of the run."""
    mean, rollouts = load.episodes, load.rollouts
    per_turn = mean.sampled_per_turn + mean.observed_per_turn
    requests = mean.turns * rollouts
    prompt = requests * (mean.prompt + per_turn * (mean.turns - 1) / 2)
    answer = rollouts * mean.sampled
    return ApiCost(
        requests=round(requests),
        prompt_tokens=prompt,
        answer_tokens=answer,
        usd=rates.cost_usd(round(prompt), 0, round(answer)),
        minutes=max(
            requests / rates.requests_per_minute if rates.requests_per_minute else 0.0,
            (prompt + answer) / rates.tokens_per_minute if rates.tokens_per_minute else 0.0,
        ),
    )
