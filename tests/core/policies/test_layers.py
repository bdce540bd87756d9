"""Keywords of attention: no keyword is dropped that changes a layer's result."""

import pytest
import torch
from torch import nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention, eager_attention_forward

from tasks.core.policies.layers import PLAIN, additive, read_keywords


def test_keywords_without_effect_are_plain_and_a_window_is_kept() -> None:
    assert read_keywords(nn.Identity(), {"dropout": 0.0, "position_ids": torch.zeros(1), "softcap": None}) is PLAIN
    assert read_keywords(nn.Identity(), {"sliding_window": 8}).window == 8


def test_an_unknown_keyword_and_attention_that_is_not_causal_are_errors() -> None:
    with pytest.raises(ValueError, match="Identity: its attention has the keyword position_bias"):
        read_keywords(nn.Identity(), {"position_bias": torch.zeros(1)})
    with pytest.raises(ValueError, match="Identity: its attention is not causal"):
        read_keywords(nn.Identity(), {"is_causal": False})


def test_a_soft_cap_takes_the_models_own_function() -> None:
    layer = Gemma2Attention.__new__(Gemma2Attention)
    assert read_keywords(layer, {"softcap": 2.0, "sliding_window": 8}) == (8, eager_attention_forward)
    with pytest.raises(ValueError, match="Identity: its modelling file has no eager_attention_forward"):
        read_keywords(nn.Identity(), {"s_aux": torch.zeros(4)})


def test_a_mask_is_added_where_nothing_is_seen() -> None:
    mask = additive(torch.tensor([True, False]), torch.bfloat16)
    assert mask.tolist() == [0.0, torch.finfo(torch.bfloat16).min]
