"""The decision whether a version may become champion. Pure: outcomes in, decision with reasons out."""

from dataclasses import dataclass

from tasks.core.config.lineage import PromotionRule
from tasks.core.evaluation.differences import METRICS, PairedTest, paired_test
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.records.schemas import BASE_POLICY, SELECTED_POLICY
from tasks.core.registry.version_evaluation import VersionEvaluation


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
    better, better_text = _better(_test(candidate, champion, rule.better_on, rule), rule)
    not_worse, not_worse_text = _not_worse(_test(candidate, champion, rule.not_worse_on, rule), rule)
    return Decision(better and not_worse, (better_text, not_worse_text))


def _scored_differently(candidate: VersionEvaluation, champion: VersionEvaluation, rule: PromotionRule) -> str | None:
    knobs = {"candidate": candidate.params, "champion": champion.params}
    conditions = scored_differently(knobs, (rule.better_on, rule.not_worse_on))
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
    means = METRICS[rule.metric]
    return paired_test(means(theirs), means(candidate.outcomes.get((split, SELECTED_POLICY), [])), rule.confidence)


def _better(test: PairedTest | None, rule: PromotionRule) -> tuple[bool, str]:
    name = f"{rule.metric.upper()} on {rule.better_on}"
    if test is None:
        return False, f"{name}: nothing that both have played"
    enough = test.difference > rule.min_gain
    verdict = "better" if enough else "not better"
    return enough, f"{name}: {verdict} ({_figures(test, rule)}; more than {rule.min_gain:g} is needed)"


def _not_worse(test: PairedTest | None, rule: PromotionRule) -> tuple[bool, str]:
    name = f"{rule.metric.upper()} on {rule.not_worse_on}"
    if test is None:
        return False, f"{name}: nothing that both have played"
    highest = test.difference if test.high is None else test.high
    worse = highest < 0
    return not worse, f"{name}: {'worse' if worse else 'not worse'} ({_figures(test, rule)})"


def _figures(test: PairedTest, rule: PromotionRule) -> str:
    if test.low is None or test.high is None:
        return f"{test.difference:+.1f} points, no interval from one scenario"
    return f"{test.difference:+.1f} points, {100 * rule.confidence:g}% interval {test.low:+.1f} to {test.high:+.1f}"
