"""The learner beside a loop over single rollouts (one forward and backward each, full logits), as the reference has it.

    python tests/benchmarks/learner.py

Both do the same work: old log-probs, then one epoch of minibatches with one AdamW step each, on the same rollouts in
the same order. The loop is strictly one after the other, and fastest with one thread; the learner takes packs on all
cores. They take turns, so that a busy machine slows both; `learner_vs_single` is the median of the rounds' ratios of
wall clock, `learner_vs_single_per_core` that of CPU time. Their gradients on the first minibatch are compared before.
"""

import copy
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from result_file import write_result
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.learner import backward, make_learner, update
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.model import use_packed_attention
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout, pack_rollouts
from tasks.core.policies.loading import trainable_policy
from tasks.core.processes.resources import usable_cores

ROLLOUTS, ROUNDS, VOCABULARY = 240, 5, 1024
CONFIG = UpdateConfig(epochs=1, shuffle=False, fold_adapter=True)
CPU = torch.device("cpu")
Run = Callable[[nn.Module, Sequence[Rollout]], None]


def make_policy() -> nn.Module:
    """The architecture of the embedded policy, with a LoRA adapter that is no longer zero."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    base = Qwen2ForCausalLM(config).requires_grad_(False).eval()
    policy = trainable_policy(base, PolicyConfig(), None, seed=0)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if ".lora_B." in name:
                weight.normal_(0, 0.02)
    return policy


def make_rollout(random: np.random.Generator) -> Rollout:
    """150 to 300 tokens: a prompt, then 3 or 4 turns with an observation after each."""
    position, sampled, turns = int(random.integers(60, 120)), [], []
    for turn in range(int(random.integers(3, 5))):
        length = int(random.integers(14, 30))
        sampled += range(position, position + length)
        turns += [turn] * length
        position += length + int(random.integers(8, 24))
    ids = random.integers(0, VOCABULARY, position)
    logprobs = np.zeros(len(sampled), np.float32)
    return Rollout(ids, np.array(sampled), np.array(turns), logprobs, float(random.normal()))


def single_logprobs(policy: nn.Module, rollout: Rollout) -> Tensor:
    """[P] through the whole rollout's logits."""
    logits = policy(input_ids=torch.from_numpy(rollout.token_ids)[None], use_cache=False).logits[0].float()
    logprobs = torch.log_softmax(logits[:-1], -1)
    chosen = logprobs.gather(-1, torch.from_numpy(rollout.token_ids[1:])[:, None])[:, 0]
    return chosen[torch.from_numpy(rollout.policy_positions) - 1]


def single_gradients(policy: nn.Module, rollouts: Sequence[Rollout], old: Sequence[Tensor]) -> None:
    for rollout, before in zip(rollouts, old, strict=True):
        weights = (single_logprobs(policy, rollout) - before).exp()
        bounded = weights.clamp(1 / 1.1, 1.1)
        objective = torch.minimum(weights * rollout.advantage, bounded * rollout.advantage).mean()
        (-objective / (CONFIG.minibatch or len(rollouts))).backward()


def single_update(policy: nn.Module, rollouts: Sequence[Rollout]) -> None:
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=CONFIG.learning_rate, weight_decay=CONFIG.weight_decay, fused=True)
    with torch.no_grad():
        old = [single_logprobs(policy, rollout) for rollout in rollouts]
    size = CONFIG.minibatch or len(rollouts)
    for start in range(0, len(rollouts), size):
        optimizer.zero_grad()
        single_gradients(policy, rollouts[start : start + size], old[start : start + size])
        nn.utils.clip_grad_norm_(trained, CONFIG.max_grad_norm)
        optimizer.step()


def packed_update(policy: nn.Module, rollouts: Sequence[Rollout]) -> None:
    update(make_learner(policy, CONFIG), rollouts, CONFIG, temperature=1.0, seed=0)


def gradient_difference(policy: nn.Module, rollouts: Sequence[Rollout]) -> float:
    """Relative, over all trained parameters, on one minibatch."""
    single, packed = copy.deepcopy(policy), copy.deepcopy(policy)
    with torch.no_grad():
        old = [single_logprobs(single, rollout) for rollout in rollouts]
    single_gradients(single, rollouts, old)
    use_packed_attention(packed)
    packs = pack_rollouts(rollouts, range(len(rollouts)), CONFIG.tokens_per_pack, CPU)
    objective = Objective.of(CONFIG, len(rollouts), temperature=1.0)
    backward(packed, compute_fixed_logprobs(packed, packs, rollouts, objective).attach(packs), objective)
    expected, found = flat_gradient(single), flat_gradient(packed)
    return float((found - expected).norm() / expected.norm())


def flat_gradient(policy: nn.Module) -> Tensor:
    return torch.cat([weight.grad.double().flatten() for weight in policy.parameters() if weight.grad is not None])


def seconds(run: Run, policy: nn.Module, rollouts: Sequence[Rollout]) -> tuple[float, float]:
    """Wall clock and CPU time."""
    own = copy.deepcopy(policy)
    wall, cpu = time.perf_counter(), time.process_time()
    run(own, rollouts)
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    rollouts, policy = [make_rollout(random) for _ in range(ROLLOUTS)], make_policy()
    difference = gradient_difference(policy, rollouts[: CONFIG.minibatch])
    for run in (single_update, packed_update):
        seconds(run, policy, rollouts[:32])
    rounds = [
        (seconds(single_update, policy, rollouts), seconds(packed_update, policy, rollouts)) for _ in range(ROUNDS)
    ]
    wall = [(single[0], packed[0]) for single, packed in rounds]
    cpu = [(single[1], packed[1]) for single, packed in rounds]
    tokens = sum(len(rollout.token_ids) for rollout in rollouts)
    write_result(
        "learner",
        {
            "learner_vs_single": round(statistics.median(single / packed for single, packed in wall), 2),
            "learner_vs_single_per_core": round(statistics.median(single / packed for single, packed in cpu), 2),
            "learner_tokens_per_s": round(statistics.median(tokens / packed for _, packed in wall)),
            "single_tokens_per_s": round(statistics.median(tokens / single for single, _ in wall)),
            "gradient_difference": difference,
            "cores": usable_cores(),
            "rollouts": ROLLOUTS,
            "tokens": tokens,
            "policy_tokens": sum(len(rollout.policy_positions) for rollout in rollouts),
            "parameters": sum(weight.numel() for weight in policy.parameters()),
            "rounds": ROUNDS,
        },
    )


if __name__ == "__main__":
    main()
