"""Positions of a model by its config: a limited context scales nothing, and some rotary factors depend on length."""

from typing import Any

import pytest

from tasks.core.policies.positions import (
    context_length,
    fixed_positions,
    limited_context,
    probe_lengths,
    require_fixed_rotary,
    rotary_by_length,
)


def config(rotary: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model_type": "phi3", "max_position_embeddings": 4096, "rope_parameters": rotary, **more}


DEFAULT = config({"rope_type": "default", "rope_theta": 1e4})
LONG = config({"rope_type": "longrope", "original_max_position_embeddings": 512})
DYNAMIC = config({"rope_type": "dynamic", "factor": 2.0})
BY_LAYER = config(
    {"full_attention": {"rope_type": "yarn", "factor": 4.0}, "sliding_attention": {"rope_type": "default"}}
)


def test_a_shorter_context_leaves_the_numbers_that_rotary_factors_come_from() -> None:
    assert limited_context(DEFAULT, 100) == {**DEFAULT, "max_position_embeddings": 100}
    for scaled in (LONG, DYNAMIC, BY_LAYER):
        limited = limited_context(scaled, 100)
        assert limited["max_position_embeddings"] == 4096
        assert context_length(limited) == 100 and context_length(scaled) == 4096


def test_a_model_that_names_no_context_needs_the_knob() -> None:
    with pytest.raises(ValueError, match=r"a mamba model names no longest context: set policy\.context_length"):
        context_length({"model_type": "mamba"})
    assert context_length(limited_context({"model_type": "mamba"}, 64)) == 64


def test_longrope_is_for_contexts_within_the_original_length() -> None:
    assert fixed_positions(LONG) == 512 and rotary_by_length(LONG)
    with pytest.raises(ValueError, match=r"Phi3: its rotary factors change at 512 .* policy.context_length must be at"):
        require_fixed_rotary(LONG, "Phi3")
    require_fixed_rotary(limited_context(LONG, 512), "Phi3")
    require_fixed_rotary({**LONG, "original_max_position_embeddings": 4096}, "Phi3")


def test_within_the_models_own_context_dynamic_factors_are_its_own() -> None:
    assert fixed_positions(DYNAMIC) == 4096 and not rotary_by_length(DYNAMIC)
    assert fixed_positions(DEFAULT) is None


def test_probes_lie_on_both_sides_of_each_window_within_the_context() -> None:
    assert probe_lengths(DEFAULT) == [19, 45, 100]
    assert probe_lengths({**DEFAULT, "sliding_window": 1000}) == [19, 45, 100, 995, 1013]
    assert probe_lengths({**DEFAULT, "sliding_window": 1000, "use_sliding_window": False}) == [19, 45, 100]
    assert probe_lengths({**limited_context(DEFAULT, 50), "sliding_window": 1000}) == [19, 45, 50]
