"""One episode in token ids: exactly those that the engine saw and sampled, in their order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.core.interfaces.world import Observation
from tasks.core.records.schemas import TURN_COLUMNS


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
    turn_progress: list[float] = field(default_factory=list)
    """[turns] share of the unit tests that the world's state passes after each; empty where that is not measured."""
    tree_nodes: list[int] = field(default_factory=list)
    """[turns] the node of the task's tree to which each leads; empty where no tree is searched."""

    @property
    def played_turns(self) -> int:
        """Number of turns that were sampled and answered."""
        return len(self.turns)

    def columns(self) -> dict[str, Any]:
        """Columns by name; those with a value per turn only where there is any."""
        return {name: value for name, value in vars(self).items() if value or name not in TURN_COLUMNS}

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

    def add_progress(self, share: float | None) -> None:
        """Note the share of unit tests that the last turn left passed; None, of a state that is lost, is the last."""
        held = self.turn_progress[-1] if self.turn_progress else 0.0
        self.turn_progress.append(held if share is None else share)

    def _extend(self, ids: Sequence[int], *, sampled: bool, turn: int, logprobs: Sequence[float]) -> None:
        self.token_ids.extend(ids)
        self.policy_mask.extend([sampled] * len(ids))
        self.turn_index.extend([turn] * len(ids))
        self.engine_logprobs.extend(logprobs)
