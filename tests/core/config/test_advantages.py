import pytest
from pydantic import ValidationError

from flows.params_file import params_of
from tasks.core.config.advantages import AdvantageConfig


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"estimator": "group_normalised"}, "`group_normalised` is now `group_mean` with `divide_by_std: sample`"),
        ({"normalise_by_std": True}, "`normalise_by_std` is now called `divide_by_std`"),
        ({"estimator": "success", "divide_by_std": "sample"}, "divide_by_std needs an estimator with a baseline"),
        ({"estimator": "success", "normalise_over_batch": True}, "normalise_over_batch would train against failures"),
        ({"estimator": "turn_progress", "divide_by_std": "sample"}, "divide_by_std .* turn_progress set it to null"),
        ({"estimator": "turn_progress", "normalise_over_batch": True}, "normalise_over_batch .* set it to false"),
        ({"pair_gap": 0.1, "divide_by_std": "population"}, "divide_by_std .* with pair_gap set it to null"),
        ({"pair_gap": 0.1, "normalise_over_batch": True}, "normalise_over_batch .* with pair_gap set it to false"),
    ],
)
def test_what_would_divide_twice_or_for_nothing_is_refused(content: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        AdvantageConfig.model_validate(content)


@pytest.mark.parametrize(
    ("profile", "kind"),
    [
        ("paper", None),
        ("loop_std", "population"),
        ("grpo", "population"),
        ("grpo_no_kl", "population"),
        ("starpo_s", "sample"),
        ("starpo_grpo", "sample"),
    ],
)
def test_the_papers_methods_divide_as_their_code_does(profile: str, kind: str | None) -> None:
    assert params_of(profile).advantages.divide_by_std == kind
