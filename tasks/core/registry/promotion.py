"""The decision whether a version may become champion. Pure: outcomes in, decision with reasons out."""

from dataclasses import dataclass

from tasks.core.config.lineage import PromotionRule
from tasks.core.evaluation.differences import CONFIDENCE, METRICS, PairedTest, paired_test
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.records.schemas import BASE_POLICY, SELECTED_POLICY
from tasks.core.registry.version_evaluation import VersionEvaluation

METRIC = "tgc"
BETTER_ON = "dev"
"""The split on which a champion must have gained: the tests stay out of the choice."""


@dataclass(frozen=True)
class Decision:
    """The verdict of the promotion rule."""

    promote: bool
    reasons: tuple[str, ...]
    """One sentence for each part of the rule, with its figures."""


def decide(candidate: VersionEvaluation, champion: VersionEvaluation | None, rule: PromotionRule) -> Decision:
    """Compare the candidate with the champion, or with its own base policy if there is none.

    Versions that were scored differently cannot be compared: the candidate is refused.
    """
    if champion is not None and (refusal := _scored_differently(candidate, champion, rule)):
        return Decision(False, (refusal,))
    better, better_text = _better(_test(candidate, champion, BETTER_ON, rule), rule)
    not_worse, not_worse_text = _not_worse(_test(candidate, champion, rule.not_worse_on, rule), rule)
    return Decision(better and not_worse, (better_text, not_worse_text))


def _scored_differently(candidate: VersionEvaluation, champion: VersionEvaluation, rule: PromotionRule) -> str | None:
    knobs = {"candidate": candidate.params, "champion": champion.params}
    conditions = scored_differently(knobs, (BETTER_ON, rule.not_worse_on))
    if not conditions:
        return None
    differing = ", ".join(
        f"{name} {held['candidate']} (champion: {held['champion']})" for name, held in conditions.items()
    )
    return (
        f"scored differently, so the scores do not compare: {differing}; give params.yaml the champion's values, run "
        "`dvc repro` and promote the version that it records, or keep the two apart by `lineage.registered_model`"
    )


def _test(
    candidate: VersionEvaluation, champion: VersionEvaluation | None, split: str, rule: PromotionRule
) -> PairedTest | None:
    theirs = (champion or candidate).outcomes.get((split, SELECTED_POLICY if champion else BASE_POLICY), [])
    means = METRICS[METRIC]
    return paired_test(means(theirs), means(candidate.outcomes.get((split, SELECTED_POLICY), [])), CONFIDENCE)


def _better(test: PairedTest | None, rule: PromotionRule) -> tuple[bool, str]:
    name = f"{METRIC.upper()} on {BETTER_ON}"
    if test is None:
        return False, f"{name}: nothing that both have played"
    enough = test.difference > 0
    verdict = "better" if enough else "not better"
    return enough, f"{name}: {verdict} ({_figures(test)})"


def _not_worse(test: PairedTest | None, rule: PromotionRule) -> tuple[bool, str]:
    name = f"{METRIC.upper()} on {rule.not_worse_on}"
    if test is None:
        return False, f"{name}: nothing that both have played"
    highest = test.difference if test.high is None else test.high
    worse = highest < 0
    return not worse, f"{name}: {'worse' if worse else 'not worse'} ({_figures(test)})"


def _figures(test: PairedTest) -> str:
    if test.low is None or test.high is None:
        return f"{test.difference:+.1f} points, no interval: one scenario or no spread"
    return f"{test.difference:+.1f} points, {100 * CONFIDENCE:g}% interval {test.low:+.1f} to {test.high:+.1f}"
