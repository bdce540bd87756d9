import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tasks.core.config.update import LossConfig
from tasks.core.learner.losses import (
    UNITS,
    ImportanceUnits,
    averaged,
    behaviour_weights,
    clip_range,
    clipped_objective,
    importance_units,
    k3,
)

ROLLOUT_IDS = torch.tensor([0, 0, 0, 0, 1, 1])
TURNS = torch.tensor([0, 0, 1, 2, 0, 1])


def units(config: LossConfig) -> ImportanceUnits:
    return importance_units(config.importance, ROLLOUT_IDS, TURNS)


def by_rollout(log_ratios: Tensor, advantages: list[float], config: LossConfig, *behaviour: Tensor) -> list[float]:
    """Return each rollout's part of the loss, with one advantage for each rollout."""
    spread = torch.tensor(advantages)[ROLLOUT_IDS]
    values = clipped_objective(log_ratios, units(config), spread, config, *behaviour).values
    return averaged(values, units(config), len(advantages), config).tolist()  # type: ignore[no-any-return]


NAMED = [("token", [0, 1, 2, 3, 4, 5]), ("turn", [0, 0, 1, 2, 3, 4]), ("trajectory", [0, 0, 0, 0, 1, 1])]


@pytest.mark.parametrize(("importance", "expected"), NAMED)
def test_units_and_their_rollouts_whoever_counts_them(importance: str, expected: list[int]) -> None:
    counted = importance_units(importance, ROLLOUT_IDS, TURNS)
    given = importance_units(importance, ROLLOUT_IDS, TURNS, expected[-1] + 1)
    assert counted.ids.tolist() == expected and torch.equal(counted.rollout_ids, given.rollout_ids)
    assert torch.equal(counted.rollout_ids[counted.ids], ROLLOUT_IDS)
    last_and_first = UNITS["turn"](torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 0]))
    assert last_and_first.tolist() == [0, 0, 1, 1], "the last turn of one rollout and the first of the next"


@pytest.mark.parametrize(
    ("settings", "bounds"),
    [
        ({}, (1 / 1.1, 1.1)),
        ({"lower_bound": "symmetric"}, (0.9, 1.1)),
        ({"lower_bound": "symmetric", "clip_epsilon": 0.2, "clip_epsilon_high": 0.28}, (0.8, 1.28)),
        ({"clip_epsilon_high": 0.5}, (1 / 1.1, 1.5)),
    ],
)
def test_clip_ranges(settings: dict[str, object], bounds: tuple[float, float]) -> None:
    assert clip_range(LossConfig.model_validate(settings)) == pytest.approx(bounds)


@pytest.mark.parametrize(
    ("advantage", "weight", "value", "gradient_flows"),
    [
        (2.0, 1.5, 2.2, False),  # better than average and already likelier: clipped
        (2.0, 0.5, 1.0, True),  # better, but became unlikelier: pulled back
        (-2.0, 1.5, -3.0, True),  # worse, but became likelier: pushed down
        (-2.0, 0.5, -2 / 1.1, False),  # worse and already unlikelier: clipped
        (2.0, 1.05, 2.1, True),
        (-2.0, 0.95, -1.9, True),
    ],
)
def test_the_clip_by_sign_of_the_advantage(advantage: float, weight: float, value: float, gradient_flows: bool) -> None:
    log_ratios = torch.tensor([math.log(weight)], requires_grad=True)
    zero = torch.zeros(1, dtype=torch.long)
    objective = clipped_objective(
        log_ratios, importance_units("token", zero, zero), torch.tensor([advantage]), LossConfig()
    )
    objective.values.sum().backward()
    assert objective.values.item() == pytest.approx(value)
    assert log_ratios.grad is not None
    assert log_ratios.grad.item() == pytest.approx(advantage * weight if gradient_flows else 0)
    assert int(objective.clipped) == (not gradient_flows)


@pytest.mark.parametrize(
    ("importance", "plain", "stale"),
    [
        # Rollout 0 (A = 1) has weights 1.05, 1.04 | 1.5 | 0.8; rollout 1 (A = -1) has 1.02 | 0.5; range 1/1.1 to 1.1.
        # pi_old / pi_behaviour is 2, 0.5 | 1.5 | 4; 1 | 0.25, capped at 3.
        (
            "token",
            [(1.05 + 1.04 + 1.1 + 0.8) / 4, -(1.02 + 1 / 1.1) / 2],
            [(2 * 1.05 + 0.5 * 1.04 + 1.5 * 1.1 + 3 * 0.8) / 4, -(1.02 + 0.25 / 1.1) / 2],
        ),
        (
            "turn",
            [(1.05 * 1.04 + 1.1 + 0.8) / 3, -(1.02 + 1 / 1.1) / 2],
            [(1.0 * 1.05 * 1.04 + 1.5 * 1.1 + 3 * 0.8) / 3, -(1.02 + 0.25 / 1.1) / 2],
        ),
        ("trajectory", [1.1, -1 / 1.1], [3 * 1.1, -0.25 / 1.1]),
    ],
)
def test_objectives_and_stale_ones_by_hand(importance: str, plain: list[float], stale: list[float]) -> None:
    log_ratios = torch.tensor([1.05, 1.04, 1.5, 0.8, 1.02, 0.5]).log()
    to_behaviour = torch.tensor([2, 0.5, 1.5, 4, 1, 0.25]).log()
    config = LossConfig.model_validate({"importance": importance, "max_behaviour_weight": 3.0})
    assert by_rollout(log_ratios, [1.0, -1.0], config) == pytest.approx(plain)
    assert by_rollout(log_ratios, [1.0, -1.0], config, to_behaviour) == pytest.approx(stale)


six = st.lists(st.floats(-3, 3), min_size=6, max_size=6)


@pytest.mark.parametrize(("importance", "named"), NAMED)
@given(log_ratios=six, advantages=six)
def test_a_large_epsilon_clips_nothing(
    importance: str, named: list[int], log_ratios: list[float], advantages: list[float]
) -> None:
    """Expect w A of every unit, and its gradient, which is w A for each of the unit's log-ratios."""
    terms = {"importance": importance, "clip_epsilon": 1 - 1e-9, "clip_epsilon_high": 1e9, "lower_bound": "symmetric"}
    config, new = LossConfig.model_validate(terms), torch.tensor(log_ratios, dtype=torch.float64, requires_grad=True)
    found = clipped_objective(new, units(config), torch.tensor(advantages, dtype=torch.float64), config)
    plain = []
    for unit in range(max(named) + 1):
        inside = [token for token in range(6) if named[token] == unit]
        weight = math.prod(math.exp(log_ratios[token]) for token in inside)
        plain.append(weight * sum(advantages[token] for token in inside) / len(inside))
    assert int(found.clipped) == 0
    assert found.values.tolist() == pytest.approx(plain)
    slopes = torch.autograd.grad(found.values.sum(), new)[0].tolist()
    assert slopes == pytest.approx([plain[unit] for unit in named])


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_weight_beyond_every_float_gives_finite_gradients(advantage: float) -> None:
    log_ratios = torch.full((6,), 50.0, requires_grad=True)
    config = LossConfig(importance="trajectory")
    objective = clipped_objective(log_ratios, units(config), torch.full((6,), advantage), config)
    objective.values.sum().backward()
    assert log_ratios.grad is not None
    assert torch.isfinite(objective.values).all() and torch.isfinite(log_ratios.grad).all()


def test_k3_by_hand_also_where_its_exponential_would_overflow() -> None:
    """From 20 on it is e^20 (1 + (x - 20)) - 1 - x, with a slope of e^20 - 1."""
    log_ratios = torch.tensor([0.0, math.log(2), -math.log(2), 20, 25, 200], dtype=torch.float64, requires_grad=True)
    found, edge = k3(log_ratios), math.exp(20)
    small = [0, 2 - 1 - math.log(2), 0.5 - 1 + math.log(2)]
    assert found.tolist() == pytest.approx([*small, edge - 21, 6 * edge - 26, 181 * edge - 201], abs=1e-6)
    assert torch.autograd.grad(found.sum(), log_ratios)[0].tolist()[3:] == pytest.approx([edge - 1] * 3)


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=20))
def test_k3_is_never_negative(log_ratios: list[float]) -> None:
    assert (k3(torch.tensor(log_ratios, dtype=torch.float64)) >= 0).all()


def test_the_weight_of_the_behaviour_policy_is_the_product_with_a_geometric_mean_too() -> None:
    """GSPO's own weight is e^-0.5; the weight of an engine's four samples is e^-2: verl's `rollout_is: sequence`."""
    zeros, log_ratios = torch.zeros(4, dtype=torch.long), torch.full((4,), -0.5)
    whole = importance_units("trajectory", zeros, zeros)
    for unit_weight in ("product", "geometric_mean"):
        config = LossConfig.model_validate({"importance": "trajectory", "unit_weight": unit_weight})
        assert behaviour_weights(log_ratios, whole, config).tolist() == pytest.approx([math.exp(-2)])


def test_gspo_token_by_hand() -> None:
    """Weight e^0.6, clipped at 1.2 for the two better tokens but not for the worse, which alone have a gradient."""
    zeros, log_ratios = torch.zeros(4, dtype=torch.long), torch.full((4,), 0.6, requires_grad=True)
    config = LossConfig(
        importance="trajectory", unit_weight="geometric_mean", clip_epsilon=0.2, lower_bound="symmetric"
    )
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.2])
    found = clipped_objective(log_ratios, importance_units("trajectory", zeros, zeros), advantages, config)
    weight = math.exp(0.6)
    assert found.values.tolist() == pytest.approx([(1.2 + 1.2 - weight - 1.2 * weight) / 4])
    found.values.sum().backward()
    assert log_ratios.grad is not None
    assert log_ratios.grad.tolist() == pytest.approx([0, 0, -weight / 4, -1.2 * weight / 4])
    assert int(found.clipped) == 0
    better = clipped_objective(log_ratios, importance_units("trajectory", zeros, zeros), torch.ones(4), config)
    assert int(better.clipped) == 1
