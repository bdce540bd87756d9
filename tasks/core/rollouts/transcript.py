"""The record of an episode while it is played: the sequences of tokens, and how the world took each turn."""

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
    sequence_begins: list[int] = field(default_factory=lambda: [0])
    turns: list[dict[str, Any]] = field(default_factory=list)
    turn_rewards: list[float] = field(default_factory=list)
    """One reward per turn in worlds that give rewards, else empty."""
    turn_progress: list[float] = field(default_factory=list)
    """[turns] Share of the unit tests that pass after each turn; empty if not measured."""
    tree_nodes: list[int] = field(default_factory=list)
    """[turns] The node of the task's tree that each turn leads to; empty if no tree is searched."""

    @property
    def played_turns(self) -> int:
        """Number of turns that were sampled and answered."""
        return len(self.turns)

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens that the policy sampled."""
        return sum(self.policy_mask)

    def columns(self) -> dict[str, Any]:
        """Return the columns by name; leave out optional columns in which nothing stands."""
        return {name: value for name, value in vars(self).items() if value or name not in TURN_COLUMNS}

    def add_turn(self, prompt_ids: Sequence[int], ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Append a sampled turn behind all that it saw; the previous turn must have had its reply.

        It continues the last sequence where `prompt_ids` begin with all of it. Else it begins a sequence, in which the
        whole prompt is context, whatever of it was sampled before. A turn without ids leaves the sequences as they are.
        """
        if not ids:
            return
        known = self.token_ids[self.sequence_begins[-1] :]
        if list(prompt_ids[: len(known)]) != known:
            self.sequence_begins.append(len(self.token_ids))
            known = []
        context = prompt_ids[len(known) :]
        self._extend(context, sampled=False, turn=-1, logprobs=[0.0] * len(context))
        self._extend(ids, sampled=True, turn=self.played_turns, logprobs=logprobs)

    def add_reply(self, observation: Observation) -> None:
        """Record how the world took the last sampled turn."""
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
        """Record the share of unit tests that pass after the last turn.

        None means that the world's state is lost; the previous share is repeated.
        """
        held = self.turn_progress[-1] if self.turn_progress else 0.0
        self.turn_progress.append(held if share is None else share)

    def _extend(self, ids: Sequence[int], *, sampled: bool, turn: int, logprobs: Sequence[float]) -> None:
        self.token_ids.extend(ids)
        self.policy_mask.extend([sampled] * len(ids))
        self.turn_index.extend([turn] * len(ids))
        self.engine_logprobs.extend(logprobs)
