"""How far bfloat16 alone moves log-probs: the engine of this process beside the learner, and one pack beside another.

    python tests/benchmarks/bfloat16_noise.py

A Qwen2 of random weights with logits up to about 20, and a LoRA adapter that is no longer zero. The engine samples
conversations token by token, from its cache; the learner computes the same tokens in packs, before any step.

* `heads` "float32": as both compute. "bfloat16": the engine's logits are rounded, as those of vLLM's head are.
  "both bfloat16": the learner's as well.
* `kernels` "this CPU's": a product's row has the same bits in any pack. "parted sums": each product is made of two
  parts, rounded to bfloat16, parted at a place that depends on the number of rows: what a GPU's library may do
  (split-k, with reduction in bfloat16 as torch allows it by default), and so an upper estimate of a GPU's noise.

`engine_mismatch` is |engine - learner| per token, on this CPU's kernels; `first_step` the share of importance weights
outside the clip range of 0.1 before any step, where old and new policy are equal: `other_packs` the old log-probs in
packs of the whole batch, `same_packs` in those of the minibatches (as an update computes them in bfloat16).
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from result_file import write_result
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings
from tasks.core.learner.learner import make_learner
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.metrics import engine_mismatch
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout, pack_rollouts
from tasks.core.learner.proofs import ENGINE_NOISE
from tasks.core.policies.loading import save_policy, trainable_policy, trained_tensors

CONFIG = UpdateConfig(fold_adapter=False, minibatch=8)
CPU = torch.device("cpu")
LOGIT_STD = 5.0
"""Standard deviation of a row of logits: the largest of thousands is about 20."""


def make_base(layers: int, width: int, vocabulary: int, dtype: torch.dtype) -> Qwen2ForCausalLM:
    """Every layer adds as much to the residual stream as it reads."""
    torch.manual_seed(0)
    sizes = {
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_hidden_layers": layers,
        "vocab_size": vocabulary,
    }
    config = Qwen2Config(
        **sizes,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 128,
        tie_word_embeddings=False,
        initializer_range=width**-0.5,
        max_position_embeddings=1024,
    )
    model = Qwen2ForCausalLM(config)
    model.base_model.embed_tokens.weight.data.normal_()
    model.lm_head.weight.data.normal_(0, LOGIT_STD * width**-0.5)
    return model.to(dtype).requires_grad_(False).eval()


def save_adapter(base: Qwen2ForCausalLM, config: PolicyConfig, folder: Path) -> nn.Module:
    policy = trainable_policy(base, config, None, seed=0)
    with torch.no_grad():
        for name, tensor in trained_tensors(policy).items():
            if "lora_B" in name:
                tensor.normal_(0, 0.02)
    save_policy(policy, folder)
    return policy


def play(engine: TransformersEngine, conversations: int, turns: int, tokens: int, vocabulary: int) -> list[Rollout]:
    """Turns of `tokens` sampled ids after observations of 10 to 40 random ones."""
    random = np.random.default_rng(0)
    ids: dict[str, list[int]] = {str(number): [] for number in range(conversations)}
    sampled: dict[str, list[tuple[int, int, float]]] = {name: [] for name in ids}
    for turn in range(turns):
        for number, (name, known) in enumerate(ids.items()):
            known += random.integers(0, vocabulary, int(random.integers(10, 40))).tolist()
            settings = SamplingSettings(1.0, tokens, ())
            engine.submit(GenerationRequest(name, list(known), settings, seed=turn * conversations + number))
        while finished := engine.collect():
            for one in finished:
                start = len(ids[one.sequence_id])
                ids[one.sequence_id] += one.token_ids
                sampled[one.sequence_id] += [(start + place, turn, x) for place, x in enumerate(one.logprobs)]
    return [as_rollout(ids[name], sampled[name]) for name in ids]


def as_rollout(ids: Sequence[int], sampled: Sequence[tuple[int, int, float]]) -> Rollout:
    places, turns, logprobs = (np.array(column) for column in zip(*sampled, strict=True))
    return Rollout(np.array(ids), places, turns, logprobs.astype(np.float32), 1.0)


def parted(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """Forward hook of a linear layer: two partial sums, parted at a place that the number of rows decides."""
    states, weight, bias = inputs[0], module.weight, module.bias
    width = states.shape[-1]
    place = width // 4 + 7 * states.numel() // width % (width // 2)
    first, second = linear(states[..., :place], weight[:, :place]), linear(states[..., place:], weight[:, place:])
    return (first + second if bias is None else first + second + bias).to(output.dtype)


@contextmanager
def kernels(models: Sequence[nn.Module], name: str) -> Iterator[None]:
    """All frozen products but the head's, as kernels of this name compute them."""
    layers = [layer for model in models for layer in frozen_products(model)] if name == "parted sums" else []
    hooks = [layer.register_forward_hook(parted, prepend=True) for layer in layers]  # before an adapter beside it
    yield
    for hook in hooks:
        hook.remove()


def frozen_products(model: nn.Module) -> list[nn.Module]:
    found = [(name, module) for name, module in model.named_modules() if type(module) is nn.Linear]
    return [module for name, module in found if "lora_" not in name and not name.endswith("lm_head")]


def round_logits(model: nn.Module) -> None:
    """Take the float32 logits away again."""
    model.get_output_embeddings().__dict__.pop("forward", None)  # type: ignore[operator]


def logprobs(policy: nn.Module, rollouts: list[Rollout], *, same_packs: bool) -> list[Tensor]:
    """Old log-probs in packs of the whole batch or in those of each minibatch."""
    size = CONFIG.minibatch if same_packs and CONFIG.minibatch else len(rollouts)
    rows = [range(start, min(start + size, len(rollouts))) for start in range(0, len(rollouts), size)]
    packs = [pack for chosen in rows for pack in pack_rollouts(rollouts, list(chosen), CONFIG.tokens_per_pack, CPU)]
    return compute_fixed_logprobs(policy, packs, rollouts, Objective.of(CONFIG, len(rollouts), 1.0)).old


def outside_clip_range(old: list[Tensor], new: list[Tensor]) -> dict[str, float]:
    gap = (torch.cat(new) - torch.cat(old)).abs()
    clipped = float((gap > np.log(1 + CONFIG.loss.clip_epsilon)).float().mean())
    return {"share_clipped": round(clipped, 5), "mean": float(f"{gap.mean():.2e}"), "max": float(f"{gap.max():.2e}")}


def measure(sizes: dict[str, int], played: dict[str, int], dtype: str, heads: str, kernel: str) -> dict[str, Any]:
    config = PolicyConfig.model_validate({"dtype": dtype, "device": "cpu"})
    with tempfile.TemporaryDirectory() as folder:
        policy = make_learner(
            save_adapter(make_base(**sizes, dtype=getattr(torch, dtype)), config, Path(folder)), CONFIG
        )
        sampler = make_base(**sizes, dtype=getattr(torch, dtype))
        engine = TransformersEngine(sampler)
        engine.load_adapter(Path(folder))
    if heads != "float32":
        round_logits(sampler)
    if heads == "both bfloat16":
        round_logits(policy.policy)
    with kernels([sampler, policy.policy], kernel):
        rollouts = play(engine, **played, vocabulary=sizes["vocabulary"])
        new = logprobs(policy.policy, rollouts, same_packs=True)
        again = logprobs(policy.policy, rollouts, same_packs=True)
        other = logprobs(policy.policy, rollouts, same_packs=False)
    first = {"other_packs": outside_clip_range(other, new), "same_packs": outside_clip_range(again, new)}
    row = {"dtype": dtype, "heads": heads, "kernels": kernel, "first_step": first}
    if kernel == "this CPU's":
        mismatch = engine_mismatch(rollouts, new, ENGINE_NOISE[getattr(torch, dtype)].token)
        row["engine_mismatch"] = {"mean": float(f"{mismatch.mean:.2e}"), "max": float(f"{mismatch.max:.2e}")}
    return row | {"mean_logprob": round(float(torch.cat(new).mean()), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what bfloat16 does to log-probs.")
    for name, value in (("layers", 12), ("width", 256), ("vocabulary", 8192)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("conversations", 24), ("turns", 2), ("tokens", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = vars(parser.parse_args())
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    sizes = {name: arguments[name] for name in ("layers", "width", "vocabulary")}
    played = {name: arguments[name] for name in ("conversations", "turns", "tokens")}
    settings = [("float32", "float32", "this CPU's"), ("float32", "float32", "parted sums")]
    settings += [
        ("bfloat16", heads, kernel)
        for heads in ("float32", "bfloat16", "both bfloat16")
        for kernel in ("this CPU's", "parted sums")
    ]
    rows = [measure(sizes, played, *one) for one in settings]
    write_result("bfloat16_noise", {**sizes, **played, "logit_std": LOGIT_STD, "rows": rows})


if __name__ == "__main__":
    main()
