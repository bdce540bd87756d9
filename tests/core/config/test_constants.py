"""Knobs that became constants: an old params.yaml that sets one is refused in one line, with the value it has now."""

import re

import pytest
from pydantic import ValidationError

from tasks.core.chat_servers.client import ATTEMPTS, LONGEST_SILENCE_S, LONGEST_WAIT_S
from tasks.core.chat_servers.settings import ChatRequest, Traffic
from tasks.core.config.collection import ChangedLimits, TreeConfig
from tasks.core.config.lineage import PromotionRule
from tasks.core.config.monitor import InformationConfig
from tasks.core.config.policy import WarmStart
from tasks.core.config.section import Section
from tasks.core.config.update import CriticConfig, DistributedConfig, UpdateConfig
from tasks.core.engines.vllm.settings import LONGEST_START_S, LONGEST_TURN_S, VllmConfig
from tasks.core.evaluation.differences import CONFIDENCE
from tasks.core.learner.critic import FIRST_COEFFICIENT, LAST_COEFFICIENT, MAX_GRAD_NORM
from tasks.core.learner.distributed import LONGEST_WAIT_S as LONGEST_WAIT_OF_A_RANK_S
from tasks.core.learner.prompt_information import RESPONSES
from tasks.core.registry.run_registry import BETTER_ON, METRIC
from tasks.core.text_games.settings import FORMAT_PENALTY
from tasks.core.worlds.bandit.kind import BanditConfig
from tasks.core.worlds.bandit.world import RISKY_PROBABILITY, RISKY_REWARD, SAFE_REWARD
from tasks.core.worlds.frozen_lake.kind import FrozenLakeConfig
from tasks.core.worlds.frozen_lake.world import CHALLENGE_SIZE, FROZEN
from tasks.core.worlds.openenv.kind import OpenEnvConfig
from tasks.core.worlds.sokoban.kind import SokobanConfig
from tasks.core.worlds.sokoban.world import MIN_MOVES
from tasks.core.worlds.webshop.authoring import CHALLENGE_CATEGORY
from tasks.core.worlds.webshop.kind import WebShopConfig
from tasks.warm_start import SEED, TOKENS_PER_STEP, WARMUP_STEPS

CONSTANTS: list[tuple[type[Section], dict[str, object]]] = [
    (ChatRequest, {"max_tokens_field": "max_completion_tokens for OpenAI and Azure, max_tokens for other servers"}),
    (VllmConfig, {"start_timeout_s": LONGEST_START_S, "turn_timeout_s": LONGEST_TURN_S}),
    (OpenEnvConfig, {"connect_s": 10}),
    (ChangedLimits, dict.fromkeys(("max_tokens_per_turn", "max_observation_tokens"), "that of collection.limits")),
    (Traffic, {"longest_wait_s": LONGEST_WAIT_S, "attempts": ATTEMPTS, "timeout_s": LONGEST_SILENCE_S}),
    (PromotionRule, {"metric": METRIC, "better_on": BETTER_ON, "min_gain": 0, "confidence": CONFIDENCE}),
    (InformationConfig, {"responses": RESPONSES}),
    (
        CriticConfig,
        {
            "max_grad_norm": MAX_GRAD_NORM,
            "loss_coefficient": FIRST_COEFFICIENT,
            "final_loss_coefficient": LAST_COEFFICIENT,
        },
    ),
    (TreeConfig, {"exploration": "the root of 2"}),
    (UpdateConfig, {"max_engine_mismatch": "null, what rounding in the dtype explains"}),
    (DistributedConfig, {"timeout_s": LONGEST_WAIT_OF_A_RANK_S}),
    (WarmStart, {"seed": SEED, "tokens_per_step": TOKENS_PER_STEP, "warmup_steps": WARMUP_STEPS}),
    (
        BanditConfig,
        {
            "format_penalty": FORMAT_PENALTY,
            "max_actions_per_turn": BanditConfig.max_actions_per_turn,
            "safe_reward": SAFE_REWARD,
            "risky_reward": RISKY_REWARD,
            "risky_probability": RISKY_PROBABILITY,
        },
    ),
    (
        FrozenLakeConfig,
        {
            "max_actions_per_turn": FrozenLakeConfig.max_actions_per_turn,
            "format_penalty": FORMAT_PENALTY,
            "frozen": FROZEN,
            "challenge_size": CHALLENGE_SIZE,
        },
    ),
    (
        SokobanConfig,
        {
            "max_actions_per_turn": SokobanConfig.max_actions_per_turn,
            "format_penalty": FORMAT_PENALTY,
            "min_moves": MIN_MOVES,
        },
    ),
    (
        WebShopConfig,
        {
            "max_actions_per_turn": WebShopConfig.max_actions_per_turn,
            "format_penalty": FORMAT_PENALTY,
            "challenge_category": CHALLENGE_CATEGORY,
        },
    ),
]


@pytest.mark.parametrize(
    ("section", "name", "value"), [(section, *item) for section, values in CONSTANTS for item in values.items()]
)
def test_a_knob_that_became_a_constant_is_refused_with_the_value_it_has(
    section: type[Section], name: str, value: object
) -> None:
    shown = f"{value:g}" if isinstance(value, int | float) else str(value)
    with pytest.raises(ValidationError, match=rf"`{name}` is always {re.escape(shown)}(\.0)?; delete it"):
        section.model_validate({name: "anything"})
