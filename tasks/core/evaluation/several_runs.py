"""pass^k and best@k: success in all and in one of k runs of a task, estimated from its n >= k runs. Pure."""

from collections.abc import Sequence
from math import comb

from tasks.core.evaluation.tgc_sgc import Estimate, Outcome, clustered_estimate
from tasks.core.records.scores import RunsScore, RunsScores


def pass_hat_k(successes: int, runs: int, k: int) -> float:
    """Return C(c, k) / C(n, k), the unbiased probability that k runs all succeed (tau-bench, arXiv 2406.12045)."""
    return comb(successes, k) / comb(runs, k)


def best_at_k(successes: int, runs: int, k: int) -> float:
    """Return 1 - C(n - c, k) / C(n, k), that one of k runs succeeds: pass@k of Codex (arXiv 2107.03374)."""
    return 1 - comb(runs - successes, k) / comb(runs, k)


def runs_scores(played: Sequence[Outcome]) -> dict[str, RunsScore]:
    """Return both for k = 1 .. n, by k, means over the tasks: with k = 1 they are TGC. Each task has n outcomes."""
    verdicts: dict[tuple[str, str], list[bool]] = {}
    for outcome in played:
        verdicts.setdefault((outcome.scenario_id, outcome.task_id), []).append(outcome.success)
    scenarios, counts = [scenario for scenario, _ in verdicts], [(sum(v), len(v)) for v in verdicts.values()]

    def score(k: int) -> RunsScore:
        every, best = (
            clustered_estimate([of(c, n, k) for c, n in counts], scenarios) for of in (pass_hat_k, best_at_k)
        )
        return _document(every, best)

    return {str(k): score(k) for k in range(1, min((n for _, n in counts), default=0) + 1)}


def paired_runs_scores(selected: Sequence[Outcome], base: Sequence[Outcome]) -> dict[str, RunsScores]:
    """Return `runs_scores` of the selected policy and of the base."""
    theirs = runs_scores(base)
    return {
        k: RunsScores(**score.model_dump(), base_pass_hat=theirs[k].pass_hat, base_best_of=theirs[k].best_of)
        for k, score in runs_scores(selected).items()
    }


def _document(every: Estimate, best: Estimate) -> RunsScore:
    return RunsScore(
        pass_hat=every.value,
        pass_hat_se=every.standard_error,
        best_of=best.value,
        best_of_se=best.standard_error,
    )
