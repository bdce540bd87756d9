import pytest
from pydantic import ValidationError

from flows.params_file import params_of
from tasks.core.config.collection import AgentLimits, ChangedLimits, CollectionConfig
from tasks.core.config.params import ParamsError, parse_params
from tasks.core.config.stage_inputs import ScoringInputs


def test_limits_are_those_of_collection_where_evaluation_says_nothing_else() -> None:
    limits = AgentLimits(max_turns=40, max_tokens_per_turn=1500, max_observation_tokens=3000)
    assert ChangedLimits().of(limits) == limits
    assert ChangedLimits(max_turns=50).of(limits) == AgentLimits(
        max_turns=50, max_tokens_per_turn=1500, max_observation_tokens=3000
    )
    with pytest.raises(ValidationError, match="max_turns"):
        ChangedLimits(max_turns=0)


def test_the_paper_plays_40_turns_in_training_and_50_in_evaluation_and_scoring() -> None:
    params = params_of("paper")
    assert params.collection.limits.max_turns == 40
    evaluated = params.evaluation.limits.of(params.collection.limits)
    assert evaluated == AgentLimits(max_turns=50, max_tokens_per_turn=1500, max_observation_tokens=3000)
    assert params.scoring.limits.of(evaluated) == evaluated


def test_the_earlier_name_of_a_knob_names_todays() -> None:
    with pytest.raises(ValidationError, match="`live_episodes` is now called `max_concurrent_episodes`"):
        CollectionConfig.model_validate({"live_episodes": 8})


def test_a_training_budget_is_played_where_it_is_asked_for_and_another_one() -> None:
    knobs = ["collection.limits.max_turns=20", "evaluation.limits.max_turns=40"]
    for asked, test_turns, again in (("true", 40, True), ("true", 20, False), ("false", 40, False)):
        inputs = ScoringInputs.of(
            params_of(
                "default", [*knobs, f"scoring.limits.max_turns={test_turns}", f"scoring.at_training_budget={asked}"]
            )
        )
        assert (inputs.limits.max_turns, inputs.test_limits.max_turns, inputs.plays_again) == (20, test_turns, again)


@pytest.mark.parametrize(
    ("profile", "value", "message"),
    [
        ("openai", "true", r"scoring\.at_training_budget: a model behind an API has no training budget here"),
        ("default", "twice", r"scoring\.at_training_budget: Input should be a valid boolean"),
        ("default", "{max_turns: 3}", r"scoring\.at_training_budget: Input should be a valid boolean"),
    ],
)
def test_a_training_budget_that_cannot_be_played_is_refused(profile: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        params_of(profile, [f"scoring.at_training_budget={value}"])


@pytest.mark.parametrize("section", ["collection", "evaluation", "scoring"])
def test_no_limit_cuts_episodes_before_the_world_ends_them(section: str) -> None:
    content = params_of("default").model_dump(mode="json")
    content["world"] |= {"name": "sokoban", "sokoban": {"max_turns": 120}}
    for name in ("collection", "evaluation", "scoring"):
        content[name]["limits"]["max_turns"] = 120
    assert parse_params(content, "params.yaml").world.settings.most_turns == 120
    content[section]["limits"]["max_turns"] = 119
    with pytest.raises(ParamsError, match=rf"{section}\.limits\.max_turns is below world\.sokoban\.max_turns"):
        parse_params(content, "params.yaml")
