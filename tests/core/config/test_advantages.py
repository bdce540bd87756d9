import pytest
from pydantic import ValidationError

from flows.configure import params_of
from tasks.core.config.advantages import AdvantageConfig


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"estimator": "group_normalised"}, "`group_normalised` is now `group_mean` with `divide_by_std: sample`"),
        ({"normalise_by_std": True}, "`normalise_by_std` is now called `divide_by_std`"),
        ({"estimator": "success", "divide_by_std": "sample"}, "divide_by_std needs an estimator with a baseline"),
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
    ],
)
def test_the_papers_methods_divide_as_their_code_does(profile: str, kind: str | None) -> None:
    assert params_of(profile).advantages.divide_by_std == kind
