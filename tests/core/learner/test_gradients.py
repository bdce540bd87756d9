"""Log-probs, loss and gradient against a naive float64 formulation: one rollout and token at a time, full softmax."""

import math
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tasks.core.config.update import UpdateConfig
from tasks.core.learner.distributed import SINGLE, ProcessGroup
from tasks.core.learner.learner import backward, make_learner
from tasks.core.learner.logprobs import compute_fixed_logprobs, head_logprobs
from tasks.core.learner.model import Passes, decoder_layers, use_packed_attention, use_passes
from tasks.core.learner.objective import Objective, PackStats, StepStats, read_stats
from tasks.core.learner.packing import Rollout, pack_rollouts
from tests.core.learner.conftest import apart

MakePolicy = Callable[..., nn.Module]
MakeRollouts = Callable[..., list[Rollout]]
CPU = torch.device("cpu")
CONFIG = UpdateConfig()
LOSS_DIVISOR = 8
TEMPERATURE = 0.7


def objective_of(config: UpdateConfig, temperature: float = 1.0, *, corrects: bool = False) -> Objective:
    objective = Objective.of(config, LOSS_DIVISOR, temperature, stale=corrects)
    return replace(objective, loss_divisor=LOSS_DIVISOR)


def added(stats: list[PackStats]) -> StepStats:
    return read_stats(stats, torch.zeros(()), SINGLE)


def naive_logits(policy: nn.Module, rollout: Rollout) -> Tensor:
    """Return logits [P, V] float64 of one pass over the whole rollout with transformers' own attention."""
    logits = policy(input_ids=torch.from_numpy(rollout.token_ids)[None]).logits[0] / TEMPERATURE
    return logits[torch.from_numpy(rollout.policy_positions) - 1]  # type: ignore[no-any-return]


def naive_logprobs(policy: nn.Module, rollout: Rollout) -> Tensor:
    probabilities = torch.softmax(naive_logits(policy, rollout), -1)
    targets = rollout.token_ids[rollout.policy_positions]
    return torch.stack([probabilities[row, target].log() for row, target in enumerate(targets)])


def naive_objective(new: Tensor, old: Tensor, behaviour: Tensor, rollout: Rollout, config: UpdateConfig) -> Tensor:
    """Return the objective from probabilities; `behaviour` equals `old` where the same policy sampled."""
    groups: dict[int, list[int]] = {}
    for token in range(len(new)):
        unit = {"token": token, "turn": int(rollout.turns[token]), "trajectory": 0}[config.loss.importance]
        groups.setdefault(unit, []).append(token)
    terms = []
    for tokens in groups.values():
        weight = math.prod((new[token] / old[token] for token in tokens), start=torch.ones((), dtype=torch.float64))
        bounded = min(max(weight, torch.tensor(1 / 1.1)), torch.tensor(1.1))
        truncated = min(math.prod(float(old[token] / behaviour[token]) for token in tokens), 2.0)
        terms.append(truncated * min(weight * rollout.advantage, bounded * rollout.advantage))
    return sum(terms) / len(terms)  # type: ignore[return-value]


def naive_loss(
    policy: nn.Module, old: nn.Module, base: nn.Module, rollouts: list[Rollout], config: UpdateConfig, *, corrects: bool
) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for rollout in rollouts:
        new = naive_logprobs(policy, rollout)
        with torch.no_grad():
            before, reference = naive_logprobs(old, rollout), naive_logprobs(base, rollout)
        behaviour = torch.from_numpy(rollout.engine_logprobs).double() if corrects else before
        total += naive_objective(new.exp(), before.exp(), behaviour.exp(), rollout, config)
        total -= config.loss.kl_coefficient * ((reference - new).exp() - 1 - (reference - new)).mean()
        spread = torch.softmax(naive_logits(policy, rollout), -1)
        total += config.loss.entropy_coefficient * -(spread * spread.log()).sum(-1).mean()
    return -total / LOSS_DIVISOR


def gradients(policy: nn.Module) -> dict[str, Tensor]:
    return {name: weight.grad.clone() for name, weight in policy.named_parameters() if weight.grad is not None}


def nudge(policy: nn.Module) -> None:
    """Move the policy as optimizer steps would, so that some importance weights leave the clip range."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in policy.parameters():
            if weight.requires_grad:
                weight.add_(0.01 * torch.randn(weight.shape, generator=generator).to(weight))


def relative_difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    assert found.keys() == expected.keys()
    gap = sum((found[name].double() - expected[name].double()).pow(2).sum() for name in expected)
    return float((gap / sum(expected[name].double().pow(2).sum() for name in expected)) ** 0.5)


@pytest.mark.parametrize("trained", ["lora", "full"])
@pytest.mark.parametrize("importance", ["token", "turn", "trajectory"])
@pytest.mark.parametrize("corrects", [False, True])
def test_loss_and_gradient_equal_the_naive_ones(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, corrects: bool, importance: str, trained: str
) -> None:
    """`corrects`: units are weighted by pi_old / pi_behaviour too, and some of these weights exceed the cap of 2."""
    loss = {"importance": importance, "kl_coefficient": 0.05, "entropy_coefficient": 0.03}
    config = UpdateConfig.model_validate({"loss": loss, "tokens_per_pack": 60, "logprob_chunk": 7})
    rollouts = [replace(drawn, engine_logprobs=drawn.engine_logprobs - 2) for drawn in make_rollouts(6)]
    policy = make_policy(trained)
    base = make_policy("full", shaken=False)
    use_packed_attention(policy)
    use_packed_attention(base)
    packs = pack_rollouts(rollouts, range(6), config.tokens_per_pack, torch.device("cpu"))
    assert 1 < len(packs) < 6
    objective = objective_of(config, TEMPERATURE, corrects=corrects)
    fixed = compute_fixed_logprobs(policy, packs, rollouts, objective, lambda: nullcontext(base))
    nudge(policy)
    stats = added(backward(policy, fixed.attach(packs), objective))

    naive = make_policy(trained).double()
    naive.load_state_dict(policy.state_dict())
    expected = naive_loss(
        naive,
        make_policy(trained).double(),
        make_policy("full", shaken=False).double(),
        rollouts,
        config,
        corrects=corrects,
    )
    expected.backward()  # type: ignore[no-untyped-call]
    assert stats.clipped > 0
    ratios = torch.cat(fixed.old) - torch.cat([torch.from_numpy(rollout.engine_logprobs) for rollout in rollouts])
    assert (ratios > math.log(2)).any() and (ratios < math.log(2)).any()
    # The absolute tolerance is for terms of about 1 that cancel to a loss of 0.02.
    assert stats.loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    assert relative_difference(gradients(policy), gradients(naive)) < 1e-5


@pytest.mark.parametrize("passes", ["packed", "single"])
@pytest.mark.parametrize("importance", ["token", "turn", "trajectory"])
@pytest.mark.parametrize("pass_tokens", [None, 30, 1])
def test_turns_with_a_prompt_each_have_the_gradient_of_their_rollout_in_one_piece(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, importance: str, passes: Passes, pass_tokens: int | None
) -> None:
    """Nothing is left out of the prompts here, so that both are the same function of the policy."""
    config = UpdateConfig.model_validate({"loss": {"importance": importance, "entropy_coefficient": 0.03}})
    whole, results = make_rollouts(8), []
    for rollouts, longest in ((whole, None), ([apart(rollout) for rollout in whole], pass_tokens)):
        policy = make_policy()
        use_passes(policy, passes)
        packs = pack_rollouts(rollouts, range(8), 80, CPU, pass_tokens=longest)
        fixed = compute_fixed_logprobs(policy, packs, rollouts, objective_of(config))
        nudge(policy)
        stats = added(backward(policy, fixed.attach(packs), objective_of(config)))
        results.append((stats, gradients(policy), max(len(pack.passes()) for pack in packs)))
    (one, expected, _), (other, gradient, most) = results
    assert most == 1 if pass_tokens is None else most > 2
    assert other.tokens > one.tokens and other.units == one.units and other.clipped == one.clipped > 0
    assert other.loss == pytest.approx(one.loss, rel=1e-5, abs=1e-6)
    assert relative_difference(gradient, expected) < 1e-5


def test_the_activations_of_one_pass_are_in_memory(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_CPU_COUNT", "1")  # or as many passes are as there are cores
    rollouts, policy, objective = [apart(rollout) for rollout in make_rollouts(8)], make_policy(), objective_of(CONFIG)
    use_packed_attention(policy)
    packs = pack_rollouts(rollouts, range(8), 80, CPU, pass_tokens=30)
    attached = compute_fixed_logprobs(policy, packs, rollouts, objective).attach(packs)
    kept: list[weakref.ref[Tensor]] = []
    alive, lengths = list[int](), list[int]()

    def passed(layer: nn.Module, given: tuple[Tensor, ...], states: Tensor) -> None:
        if states.requires_grad:
            alive.append(sum(held() is not None for held in kept))
            lengths.append(states.shape[1])
            kept.append(weakref.ref(states))

    decoder_layers(policy)[-1].register_forward_hook(passed)  # type: ignore[arg-type]
    backward(policy, attached, objective)
    longest = max(length for rollout in rollouts for length in rollout.lengths)
    assert len(alive) == sum(len(pack.passes()) for pack in packs) and max(lengths) <= max(30, longest) < 80
    assert not any(alive)


@settings(max_examples=10)
@given(
    capacity=st.integers(1, 120),
    order=st.permutations(range(6)),
    ranks=st.integers(1, 4),
    pass_tokens=st.none() | st.integers(1, 120),
)
def test_neither_packs_nor_passes_nor_their_padding_nor_the_order_in_them_change_loss_or_gradient(
    make_policy: MakePolicy,
    make_rollouts: MakeRollouts,
    capacity: int,
    order: list[int],
    ranks: int,
    pass_tokens: int | None,
) -> None:
    """Compare gradients of a policy some steps on; the packs of several ranks, padding packs too, pass one by one."""
    config, rollouts = UpdateConfig(), [apart(rollout) for rollout in make_rollouts(6)]
    groups = [ProcessGroup(rank=rank, size=ranks) for rank in range(ranks)]
    by_rank = [pack_rollouts(rollouts, order, capacity, CPU, group, pass_tokens) for group in groups]
    assert len({tuple(len(pack.passes()) for pack in packs) for packs in by_rank}) == 1, "the ranks are not in step"
    cut = [pack for packs in by_rank for pack in packs]
    found = []
    for packs in (pack_rollouts(rollouts, range(6), 10_000, CPU), cut):
        policy = make_policy()
        use_packed_attention(policy)
        whole = pack_rollouts(rollouts, range(6), 10_000, CPU)
        fixed = compute_fixed_logprobs(policy, whole, rollouts, objective_of(config))
        nudge(policy)
        stats = added(backward(policy, fixed.attach(packs), objective_of(config)))
        found.append((stats, gradients(policy)))
    (one, expected), (other, gradient) = found
    assert (other.rollouts, other.units, other.clipped) == (6, one.units, one.clipped) and one.clipped > 0
    assert other.loss == pytest.approx(one.loss, rel=1e-5, abs=1e-6) and other.kl == pytest.approx(one.kl, rel=1e-4)
    assert relative_difference(gradient, expected) < 1e-5


def test_no_tensor_of_tokens_times_vocabulary_exists_in_forward_or_backward() -> None:
    """Watch at the dispatcher that the largest float tensor of any operation is one chunk's logits."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = function(*args, **(kwargs or {}))
            parts = result if isinstance(result, (tuple, list)) else [result]
            made = [part.numel() for part in parts if isinstance(part, Tensor) and part.is_floating_point()]
            Largest.elements = max([Largest.elements, *made])
            return result

    tokens, width, vocabulary, chunk = 400, 4, 300, 50
    head = nn.Linear(width, vocabulary, bias=False)
    states = torch.randn(tokens, width, requires_grad=True)
    with Largest():
        stats = head_logprobs(states, torch.zeros(tokens, dtype=torch.long), head, 1.0, chunk, entropy=True)
        assert stats.entropies is not None
        (stats.logprobs.sum() + stats.entropies.sum()).backward()  # type: ignore[no-untyped-call]
    assert Largest.elements == chunk * vocabulary


def test_a_masked_token_adds_nothing_to_an_entropy_and_gets_no_gradient() -> None:
    """Three equal tokens of five: ln 3. The head's other rows are masked, as the padding of a vocabulary is."""
    bias = torch.tensor([0.0, 0.0, -math.inf, 0.0, -math.inf])
    states = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weight = torch.zeros(5, 4, requires_grad=True)
    stats = head_logprobs(states, torch.tensor([0, 3]), lambda x: x @ weight.T + bias, 1.0, 2, entropy=True)
    assert stats.entropies is not None and stats.entropies.tolist() == pytest.approx([math.log(3)] * 2)
    (stats.logprobs.sum() + stats.entropies.sum()).backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None and weight.grad.isfinite().all() and not weight.grad[[2, 4]].any()


@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_changes_no_bit(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    def gradients(workers: int) -> list[Tensor]:
        monkeypatch.setenv("PYTHON_CPU_COUNT", str(workers * torch.get_num_threads()))
        policy, rollouts = make_policy(), make_rollouts(8)
        use_packed_attention(policy)
        packs = pack_rollouts(rollouts, range(8), 24, torch.device("cpu"))
        assert len(packs) > 3
        fixed = compute_fixed_logprobs(policy, packs, rollouts, objective_of(UpdateConfig()))
        backward(policy, fixed.attach(packs), objective_of(UpdateConfig()))
        return [weight.grad for weight in policy.parameters() if weight.grad is not None]

    assert all(torch.equal(one, more) for one, more in zip(gradients(1), gradients(threads), strict=True))


def test_checkpointing_changes_no_bit_of_a_gradient_and_folding_the_adapter_nothing_but_its_rounding(
    make_policy: MakePolicy, make_rollouts: MakeRollouts
) -> None:
    def gradient(**settings: bool) -> Tensor:
        config, rollouts = UpdateConfig(**settings), make_rollouts(8)
        policy, packs = make_learner(make_policy(), config).policy, pack_rollouts(rollouts, range(8), 64, CPU)
        fixed = compute_fixed_logprobs(policy, packs, rollouts, objective_of(config))
        backward(policy, fixed.attach(packs), objective_of(config))
        return torch.cat([weight.flatten() for weight in gradients(policy).values()])

    expected = gradient(activation_checkpointing=False)
    assert torch.equal(gradient(activation_checkpointing=True), expected)
    apart, folded = gradient(fold_adapter=False), gradient(fold_adapter=True)
    assert not torch.equal(apart, folded)
    assert (apart - folded).norm() <= 1e-5 * apart.norm()
