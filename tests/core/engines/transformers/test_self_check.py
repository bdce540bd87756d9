"""Kernels that sum otherwise for another number of rows or keys, as some processors' libraries do, are found out."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from tasks.core.engines.transformers import self_check
from tasks.core.engines.transformers.decode_attention import FREE, Tiles
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.engines.transformers.self_check import (
    Trial,
    activations_hold,
    attention_holds,
    first_that_holds,
    products_hold,
)
from tests.tiny_models import tiny_qwen2

TILES = Tiles(16, 64, query_alone=True)


class InParts(nn.Linear):
    """A layer that adds the products of two parts of its inputs from `rows` rows on."""

    rows = 48

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.shape[0] < self.rows:
            return super().forward(inputs)
        first = self.in_features // 3
        return inputs[..., :first] @ self.weight[:, :first].T + inputs[..., first:] @ self.weight[:, first:].T


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [48, 1000])
def test_products_that_depend_on_the_number_of_rows(rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = InParts(576, 192, bias=False).to(dtype)
    layer.rows = rows
    assert not products_hold(nn.Sequential(nn.Linear(64, 64), layer), TILES)
    assert products_hold(nn.Sequential(nn.Linear(64, 64)), TILES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("keys", "holds"), [(448, False), (1000, False), (10_000, True)])
def test_attention_that_depends_on_the_number_of_keys(
    keys: int, holds: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bfloat16, too, where rounding hides most of such a difference from who looks at the result."""

    def kernel(query: Tensor, key: Tensor, *_: Any) -> Tensor:
        return query * (1 + 2**-20) if key.shape[2] >= keys else query

    monkeypatch.setattr(self_check, "attend", kernel)
    assert attention_holds(tiny_qwen2().to(dtype), TILES) is holds


class LeftOver(nn.Module):
    """An activation that computes the last 16 elements of a pass by itself."""

    def forward(self, inputs: Tensor) -> Tensor:
        found = inputs.sigmoid().flatten()
        found[-16:] *= 1 + 2**-20
        return found.view_as(inputs)


def test_an_activation_that_depends_on_the_place_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_qwen2()
    assert activations_hold(model, TILES)
    monkeypatch.setitem(ACT2FN, model.config.hidden_act, LeftOver)
    assert not activations_hold(model, TILES)


@pytest.mark.parametrize(
    ("experts", "where"), [(8, "on any machine, in a mixture of experts,"), (0, "on this machine")]
)
def test_the_line_says_whether_the_machine_or_the_model_is_at_fault(
    experts: int, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_qwen2()
    model.config.num_experts = experts
    trial = Trial(TransformersEngine(model), model, 32)
    monkeypatch.setattr(self_check, "products_hold", lambda *_: False)
    assert first_that_holds(lambda _: None, lambda: trial, str(experts)) is FREE
    assert f"engine: {where} a conversation's last bits depend" in caplog.text


def test_one_query_at_a_time_holds_on_this_machine() -> None:
    """Else nothing is promised here for grouped heads, and other tests of this folder say where."""
    model = tiny_qwen2(hidden_size=128, num_attention_heads=8, num_key_value_heads=2)
    assert attention_holds(model, TILES._replace(head_alone=True))
