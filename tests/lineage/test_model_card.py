"""What a version's card says of its training."""

import pytest

from flows.configure import params_of
from tasks.lineage.registry.model_card import BaseModel, model_card
from tests.finished_run import scores


@pytest.mark.parametrize(
    ("profiles", "iteration", "said"),
    [
        ("smoke grpo", "i002", "A policy trained by the profile `smoke grpo` ("),
        ("smoke", "i000", "An untrained policy: LoRA adapter (rank 8) for the base model `base`."),
        ("smollm2", "i000", "An untrained policy but for its warm start: "),
    ],
)
def test_a_card_names_the_method_or_says_untrained(profiles: str, iteration: str, said: str) -> None:
    base = BaseModel("base", inside=True, revision=None)
    card = model_card(params_of(profiles), "m-1", base, [scores("test_normal")], {"iteration": iteration})
    assert f"\n{said}" in card and "LOOP" not in card
