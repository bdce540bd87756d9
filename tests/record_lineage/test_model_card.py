"""The card of a version, on its training."""

from pathlib import Path

import pytest

from flows.params_file import params_of
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.chat_settings import conversation_lines
from tasks.core.policies.loading import load_tokenizer
from tasks.record_lineage.version_files import BaseModel, model_card
from tests.core.policies.test_chat_templates import FAMILIES, tokenizer_of
from tests.finished_run import scores, training_budget

SHIPPED = Path(__file__).resolve().parents[2] / "data" / "base_policies" / "pocket"


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


def test_a_card_notes_where_conversations_were_not_the_templates_own() -> None:
    family = FAMILIES["gpt-oss"]
    lines = conversation_lines(ChatFormat(tokenizer_of(family), settings=family.settings))
    card = model_card(params_of("smoke"), "m-1", None, [scores("test_normal")], {"iteration": "i002"}, lines)
    assert "- the thoughts of earlier turns stayed as they were sampled (`policy.chat.earlier_thoughts: kept`)" in card
    assert "- the date that the chat template shows as today's was 2023-05-18\n" in card
    thoughtless = FAMILIES["qwen3, no thinking"]
    lines = conversation_lines(ChatFormat(tokenizer_of(thoughtless), settings=thoughtless.settings))
    assert "- `enable_thinking` was false" in lines
    assert conversation_lines(ChatFormat(load_tokenizer(SHIPPED))) == []
