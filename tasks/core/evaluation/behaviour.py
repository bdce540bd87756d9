"""The behaviour metrics that LOOP reports before and after training. Pure functions on rows.

Turns are counted as the world reported them (`records.schemas.TURN`), words in the agent's own text.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from tasks.core.records.scores import Behaviour

_ASSUMPTION = re.compile(r"\bassum(?:e|ed|ing)\b", re.IGNORECASE)
_DUMMY = re.compile("dummy", re.IGNORECASE)  # within names too: dummy_email, my_dummy
DOC_LOOKUP = "show_api_doc"


class Turn(TypedDict):
    """One played assistant turn: a value of the rollouts' column `turns`."""

    failed: bool
    code_blocks: int
    api_calls: list[str]
    failed_api_calls: list[str]


@dataclass(frozen=True)
class ActedRollout:
    """One rollout, reduced to what the behaviour metrics need."""

    task_id: str
    success: bool
    turns: Sequence[Turn]
    text: str
    """The policy's own tokens, decoded: thoughts and code, no observations."""


def behaviour(rollouts: Sequence[ActedRollout]) -> Behaviour:
    """Return all metrics over `rollouts` of one policy; a figure with nothing to divide by is None."""
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    lookups = sum(call.rpartition(".")[2] == DOC_LOOKUP for turn in turns for call in turn["api_calls"])
    return Behaviour(
        rollouts=len(rollouts),
        turns_per_rollout=_ratio(len(turns), len(rollouts)),
        multi_cell_turns=_ratio(sum(turn["code_blocks"] > 1 for turn in turns), len(turns)),
        doc_lookups=_ratio(lookups, len(rollouts)),
        assumptions=_ratio(_occurrences(_ASSUMPTION, rollouts), len(rollouts)),
        dummies=_ratio(_occurrences(_DUMMY, rollouts), len(rollouts)),
        give_up_rate=give_up_rate([rollout.turns for rollout in rollouts]),
        execution_errors=_ratio(sum(turn["failed"] for turn in turns), len(turns)),
        diversity=diversity(rollouts),
    )


def give_up_rate(episodes: Iterable[Sequence[Turn]]) -> float | None:
    """Return (failed - recovered) / failed endpoints, over all episodes; None when no endpoint failed.

    Within an episode a turn that errors adds all its endpoints to a set (new members count as failed), and a turn
    without error removes its endpoints from the set (removed members count as recovered).
    """
    failed = recovered = 0
    for turns in episodes:
        broken: set[str] = set()
        for turn in turns:
            endpoints = set(turn["api_calls"])
            if turn["failed"]:
                failed += len(endpoints - broken)
                broken |= endpoints
            else:
                recovered += len(endpoints & broken)
                broken -= endpoints
    return _ratio(failed - recovered, failed)


def diversity(rollouts: Iterable[ActedRollout]) -> float | None:
    """Return the share of distinct API-call sequences among the successes of one task, pooled over the tasks.

    The share is the sum over tasks of distinct sequences / the sum over tasks of successes, over the tasks with at
    least two successes (a single success is always distinct, so it carries no information). None when there is no such
    task.
    """
    sequences: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for rollout in rollouts:
        if rollout.success:
            calls = tuple(call for turn in rollout.turns for call in turn["api_calls"])
            sequences[rollout.task_id].append(calls)
    several = [calls for calls in sequences.values() if len(calls) > 1]
    return _ratio(sum(len(set(calls)) for calls in several), sum(len(calls) for calls in several))


def _occurrences(pattern: re.Pattern[str], rollouts: Iterable[ActedRollout]) -> int:
    return sum(len(pattern.findall(rollout.text)) for rollout in rollouts)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
