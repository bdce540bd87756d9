"""One episode in token ids: exactly those that the engine saw and sampled, in their order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.core.interfaces.world import Observation


@dataclass
class Transcript:
    """The columns of `records.schemas.ROLLOUTS` that grow while an episode is played."""

    token_ids: list[int] = field(default_factory=list)
    policy_mask: list[bool] = field(default_factory=list)
    turn_index: list[int] = field(default_factory=list)
    engine_logprobs: list[float] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    turn_rewards: list[float] = field(default_factory=list)
    """One per turn in worlds that give rewards, else none at all."""

    @property
    def played_turns(self) -> int:
        """Number of turns that were sampled and answered."""
        return len(self.turns)

    def columns(self) -> dict[str, Any]:
        """By name; `turn_rewards` only where the world gave any."""
        columns = dict(vars(self))
        if not self.turn_rewards:
            del columns["turn_rewards"]
        return columns

    def add_context(self, ids: Sequence[int]) -> None:
        """Append ids that the policy did not sample."""
        self._extend(ids, sampled=False, turn=-1, logprobs=[0.0] * len(ids))

    def add_turn(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Append one sampled assistant turn; the one before must have had its reply."""
        self._extend(ids, sampled=True, turn=self.played_turns, logprobs=logprobs)

    def add_reply(self, observation: Observation) -> None:
        """Note how the world took the last sampled turn."""
        if observation.reward is not None or self.turn_rewards:
            self.turn_rewards.append(observation.reward or 0.0)
        self.turns.append(
            {
                "failed": observation.failed,
                "code_blocks": observation.code_blocks,
                "api_calls": list(observation.api_calls),
                "failed_api_calls": list(observation.failed_api_calls),
            }
        )

    def _extend(self, ids: Sequence[int], *, sampled: bool, turn: int, logprobs: Sequence[float]) -> None:
        self.token_ids.extend(ids)
        self.policy_mask.extend([sampled] * len(ids))
        self.turn_index.extend([turn] * len(ids))
        self.engine_logprobs.extend(logprobs)
