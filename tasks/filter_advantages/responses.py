"""Figures of the text in an iteration's rollouts that show a collapse: pure functions of token ids."""

from collections.abc import Sequence
from statistics import fmean

from tasks.core.records.documents import ResponseStats

NGRAM = 4
Response = Sequence[int]
"""The ids of all tokens that the policy sampled in one rollout, in their order."""


def response_stats(responses: Sequence[Response], task_ids: Sequence[str]) -> ResponseStats:
    """Figures of N >= 1 finished rollouts; a run without groups of two or more has only distinct responses."""
    groups: dict[str, list[Response]] = {}
    for task, response in zip(task_ids, responses, strict=True):
        groups.setdefault(task, []).append(response)
    shares = [distinct_share(group) for group in groups.values() if len(group) > 1]
    return ResponseStats(
        length=fmean(len(response) for response in responses),
        repetition=fmean(repetition(response) for response in responses),
        distinct=fmean(shares) if shares else 1.0,
    )


def repetition(response: Response) -> float:
    """1 - different n-grams / n-grams, n = 4: seq-rep-4 of Welleck et al. (arXiv 1908.04319); 0 without an n-gram."""
    ngrams = [tuple(response[start : start + NGRAM]) for start in range(len(response) - NGRAM + 1)]
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def distinct_share(group: Sequence[Response]) -> float:
    """Different responses / responses of K >= 1 rollouts of one task: 1/K once they are all the same."""
    return len(set(map(tuple, group))) / len(group)
