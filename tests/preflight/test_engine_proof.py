"""The proof of the engine in this process: what rounding explains, and what it does not."""

from pathlib import Path

import pytest
import torch

from tasks.core.config.policy import PolicyConfig
from tasks.core.learner.proofs import EXACT, AnotherFunction, difference
from tasks.core.policies.architecture import TinyQwen2, new_model
from tasks.preflight import engine_proof
from tasks.preflight.engine_proof import Float64Pass, prove_engine, widen

SIZES = TinyQwen2(width=32, heads=1, feed_forward=32, context_length=256)
CONFIG = PolicyConfig(source="base", trained="full", device="cpu")
FAINT = 3 * EXACT
"""Of a single token: the mean is that of rounding."""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A checkpoint with all weights, which is its own base model."""
    new_model(SIZES, 100, 0, 1, seed=0).save_pretrained(tmp_path)
    return tmp_path


def test_a_single_token_that_is_off_is_a_difference_in_float32() -> None:
    expected = torch.zeros(100)
    found = expected.clone()
    found[7] = FAINT
    assert difference([found], [expected], torch.float32) == pytest.approx(FAINT)
    assert difference([found], [expected], torch.bfloat16) is None


def test_a_difference_that_one_rounding_makes_in_bfloat16_is_none() -> None:
    expected = torch.zeros(100)
    found = expected + 0.3
    assert difference([found], [expected], torch.bfloat16, rounding=0.16) is None
    assert difference([found], [expected], torch.bfloat16, rounding=0.14) == pytest.approx(0.3)
    assert difference([found], [expected], torch.float32, rounding=0.16) == pytest.approx(0.3)


def test_nan_is_a_difference_and_a_masked_token_is_none() -> None:
    expected = torch.zeros(100).index_fill(0, torch.tensor([3]), -torch.inf)
    assert difference([expected], [expected], torch.float32) is None
    for dtype in (torch.float32, torch.bfloat16):
        for found in (expected.index_fill(0, torch.tensor([7]), torch.nan), torch.zeros(100)):
            assert difference([found], [expected], dtype) is not None
        both = expected.index_fill(0, torch.tensor([7]), torch.nan)
        assert difference([both], [both], dtype) is not None


def test_rounding_of_the_models_own_pass_is_no_fault_of_the_engine(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own pass is off in float32, and exact in float64."""
    own = engine_proof.own_logprobs
    monkeypatch.setattr(
        engine_proof, "own_logprobs", lambda *given: (exact := own(*given)) + FAINT * (exact.dtype == torch.float32)
    )
    prove_engine(base, CONFIG, base)


def test_an_engine_that_is_off_by_little_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = engine_proof.own_logprobs
    monkeypatch.setattr(engine_proof, "own_logprobs", lambda *given: own(*given) + FAINT)
    with pytest.raises(AnotherFunction, match=r"the engine in this process differ by 0\.0003 nats"):
        prove_engine(base, CONFIG, base)


def test_no_part_of_a_pass_in_float64_is_rounded_to_float32() -> None:
    """Norms and rotary factors ask for float32 by name."""
    model = new_model(SIZES, 100, 0, 1, seed=0)
    widen(model)
    ids = torch.arange(50)[None]
    with torch.no_grad():
        once = model(input_ids=ids).logits
        with Float64Pass():
            passed = model(input_ids=ids).logits
            again = model(input_ids=ids.repeat(3, 1)).logits[2]
    assert passed.dtype == torch.float64
    assert 1e-10 < float((passed - once).abs().max()) < 1e-4
    assert float((passed[0] - again).abs().max()) < 1e-12
