"""Deliveries in bfloat16. Last in the folder: this server takes the place of one that the other files share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm.client import WrongPolicy
from tasks.core.engines.vllm.engine import VllmEngine, open_vllm
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.policies.chat_format import ChatFormat
from tests.core.engines.vllm.recorded_policies import SHIPPED, moved, recorded

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800), pytest.mark.usefixtures("own_records")]

BF16 = PolicyConfig(device="cpu", dtype="bfloat16")
Write = Callable[..., Path]


@pytest.fixture(scope="module")
def bf16_engine(chat: ChatFormat) -> Iterator[VllmEngine]:
    engine = open_vllm(VllmConfig(sharing="alternate"), BF16, SHIPPED, chat)
    yield engine
    engine.sleep()
    engine.close()


def test_in_bfloat16_small_steps_are_delivered_and_stale_ones_refused(
    bf16_engine: VllmEngine, chat: ChatFormat, adapters: Write, tmp_path: Path
) -> None:
    """Steps of 0.02 to 0.04, which aborted, and of which a stale one within 0.02 passed."""
    start = recorded(adapters(15), None, chat, BF16)
    policies = [start]
    for place in range(6):
        step = moved(policies[-1], tmp_path / f"step{place}", 0.002, 20 + place)
        policies.append(recorded(step, policies[-1], chat, BF16))
    bf16_engine.load_adapter(start)
    told = []
    for policy in policies[1:]:
        bf16_engine.load_adapter(policy)
        (proof,) = bf16_engine._pool.take_deliveries()[-1:]
        (before,) = [one for one in proof.comparisons if one.other == "the policy before it"]
        assert 0.015 < before.apart < 0.06 and 0.005 < proof.distance < 0.06
        told.append(before.verdict)
    assert told.count("delivered") >= 4 and set(told) <= {"delivered", "cannot tell"}
    stale = recorded(moved(start, tmp_path / "stale", 0.0, 0), start, chat, BF16, of=policies[4])
    with pytest.raises(WrongPolicy, match="not delivered"):
        bf16_engine.load_adapter(stale)


def test_in_bfloat16_what_cannot_be_told_is_said(
    bf16_engine: VllmEngine, chat: ChatFormat, adapters: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = adapters(16)
    step = recorded(moved(start, tmp_path / "step", 1e-6, 4), start, chat, BF16)
    bf16_engine.load_adapter(step)
    (figures,) = bf16_engine.take_deliveries()[-1:]
    verdicts = {one["other"]: one["verdict"] for one in figures["comparisons"]}
    assert verdicts["the base model"] == "delivered" and verdicts["the policy before it"] == "cannot tell"
    assert "cannot distinguish" in caplog.text and "from the policy before it" in caplog.text
