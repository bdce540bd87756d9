"""A version's card, on its training."""

import pytest

from flows.configure import params_of
from tasks.lineage.registry.model_card import BaseModel, model_card
from tests.finished_run import scores, training_budget


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


def test_a_card_names_both_budgets() -> None:
    plain = scores("test_normal")
    found = plain.model_copy(update={"training_budget": training_budget(plain, tgc=60.0, sgc=40.0)})
    card = model_card(params_of("smoke"), "m-1", None, [found], {"iteration": "i002"})
    assert (
        "| test_normal, 6 tasks x 2 | 30.0 / 10.0 | 70.0 / 50.0 |\n| test_normal, 6 tasks x 2, at the training " in card
    )
    assert "budget (20 turns, 1,500 tokens per turn, 3,000 per observation; above 40 turns, " in card
    assert "per observation) | 30.0 / 10.0 | 60.0 / 40.0 |" in card
