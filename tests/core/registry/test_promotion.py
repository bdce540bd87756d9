"""The rule of promotion and the conditions of scores, on evaluations made by hand."""

import pytest

from tasks.core.config.lineage import PromotionRule
from tasks.core.config.params import Params
from tasks.core.evaluation.level_scores import split_scores
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.lineage.params_and_metrics import flat_params
from tasks.core.records.schemas import BASE_POLICY, SELECTED_POLICY
from tasks.core.registry.model_registry import VersionEvaluation
from tasks.core.registry.run_registry import decide
from tasks.core.scored_models.comparing import PlayedModel, compared, comparison_page

DIFFERENT = [
    ("scoring.temperature", "1.0"),
    ("evaluation.temperature", "1.0"),
    ("scoring.top_k", "20"),
    ("evaluation.top_p", "0.95"),
    ("world.seed", "1"),
    ("world.pocketworld.chain", "2"),
    ("collection.judge_unfinished", "true"),
    ("evaluation.limits.max_turns", "4"),
]
ALIKE = [
    ("seed", "1"),
    ("update.learning_rate", "0.5"),
    ("collection.temperature", "0.5"),
    ("evaluation.every", "8"),
    ("scoring.rollouts_per_task", "1"),
    ("scoring.scenarios", "9"),
    ("world.frozen_lake.size", "5"),
    ("evaluation.limits.max_turns", "40"),
]


def played(count: int) -> list[Outcome]:
    return [Outcome(f"t{i}", f"s{i % 2}", 1, 0, i < count) for i in range(6)]


def evaluated(params: Params, solved: int, **knobs: str) -> VersionEvaluation:
    """Six tasks of two scenarios on every split, the first `solved` of them solved; the base solved none."""
    policies = {SELECTED_POLICY: solved, BASE_POLICY: 0}
    outcomes = {(s, p): played(n) for s in ("dev", "test_normal", "test_challenge") for p, n in policies.items()}
    return VersionEvaluation({**flat_params(params), **knobs}, outcomes, {})


@pytest.mark.parametrize(("knob", "value"), DIFFERENT)
def test_a_version_that_was_scored_differently_is_refused_with_the_knob_and_a_remedy(
    params: Params, knob: str, value: str
) -> None:
    champion, candidate = evaluated(params, 3), evaluated(params, 6, **{knob: value})
    decision = decide(candidate, champion, PromotionRule())
    assert not decision.promote
    (reason,) = decision.reasons
    assert f"{knob} {value} (champion: " in reason and "`dvc repro`" in reason
    assert decide(candidate, None, PromotionRule()).promote, "its own base was played as it was"


@pytest.mark.parametrize(("knob", "value"), ALIKE)
def test_what_leaves_the_meaning_of_a_score_alone_is_no_reason(params: Params, knob: str, value: str) -> None:
    assert params.collection.limits.max_turns == 40
    assert decide(evaluated(params, 6, **{knob: value}), evaluated(params, 3), PromotionRule()).promote


def test_only_the_splits_of_the_rule_count_and_limits_count_where_they_hold(params: Params) -> None:
    now = flat_params(params)
    hotter, longer = now | {"evaluation.temperature": "1.0"}, now | {"collection.limits.max_turns": "50"}
    assert not scored_differently({"1": now, "2": hotter}, ["test_normal"])
    assert scored_differently({"1": now, "2": longer}, ["test_normal"]) == {
        "scoring.limits.max_turns": {"1": "40", "2": "50"}
    }
    pinned = {"evaluation.limits.max_turns": "9"}
    assert not scored_differently({"1": now | pinned, "2": longer | pinned}, ["dev", "test_normal"])


def test_a_knob_that_older_code_did_not_have_says_nothing(params: Params) -> None:
    now = flat_params(params) | {"world.pocketworld.chain": "2"}
    older = {name: value for name, value in now.items() if name != "world.pocketworld.chain"}
    assert not scored_differently({"1": older, "2": now}, ["dev"])


def test_a_comparison_of_models_that_were_scored_differently_says_so(params: Params) -> None:
    scores, outcomes = {"test_normal": split_scores(played(3), None, None)}, {"test_normal": played(3)}
    knobs = {name: flat_params(params) | {"scoring.temperature": name} for name in ("0.1", "1.0")}
    found = compared("model", [PlayedModel(name, {}, scores, outcomes, each) for name, each in knobs.items()])
    assert found.scored_differently == {"scoring.temperature": {"0.1": "0.1", "1.0": "1.0"}}
    assert "**They were scored differently (scoring.temperature)" in comparison_page(found)
