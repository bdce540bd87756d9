"""Part of the GPU check: the chunked head and the attention kernels beside the eager formulation, in bfloat16.

    tests/benchmarks/gpu/check.sh kernels

`error` is relative to the eager formulation in float32, whose own in bfloat16 is the row `eager`; `seconds` are of a
forward and backward pass. `packed` is the learner's attention (flash-attn's kernel where it is installed).
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

from gpu.device import attempt, find_device, seconds, write_part
from tasks.core.learner.logprobs import fused_kernel, head_logprobs
from tasks.core.learner.model import flash_kernel, packed_attention
from tasks.core.policies.head import widen_head

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def relative(found: Tensor, expected: Tensor) -> float:
    return float(f"{(found.double() - expected.double()).norm() / expected.double().norm():.2e}")


def eager(lengths: tuple[int, ...]) -> Attention:
    """Softmax over all scores of each rollout."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        pieces = []
        for q, k, v in zip(*(heads.split(lengths, 2) for heads in (query, key, value)), strict=True):
            groups = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
            scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            pieces.append(scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v)
        return torch.cat(pieces, 2).transpose(1, 2)

    return attend


def attention_rows(device: torch.device, lengths: tuple[int, ...], heads: int, width: int) -> dict[str, Any]:
    torch.manual_seed(0)
    shapes = [(1, count, sum(lengths), width) for count in (heads, max(1, heads // 4), max(1, heads // 4))]
    wide = [torch.randn(shape, device=device) for shape in shapes]
    states = [one.to(torch.bfloat16).requires_grad_() for one in wide]
    expected = eager(lengths)(*(one.detach().float() for one in states))

    def row(attend: Attention) -> dict[str, Any]:
        def run() -> None:
            torch.autograd.grad(attend(*states).float().sum(), states)

        found = {"error": relative(attend(*states).detach(), expected)}
        return found | {"seconds": float(f"{seconds(run, device):.2e}")}

    def packed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return packed_attention(nn.Module(), query, key, value, None, rollout_lengths=lengths)[0]

    rows = {"eager": attempt(lambda: row(eager(lengths))), "packed": attempt(lambda: row(packed))}
    installed = "flash-attn" if flash_kernel() else "scaled_dot_product_attention: flash-attn is not installed"
    return {"lengths": lengths, "packed_uses": installed, **rows}


def head_rows(device: torch.device, tokens: int, width: int, vocabulary: int, chunk: int) -> dict[str, Any]:
    torch.manual_seed(0)
    head = nn.Linear(width, vocabulary, bias=False, device=device, dtype=torch.bfloat16).requires_grad_(False)
    head.weight.data.normal_(0, 5 * width**-0.5)
    states = torch.randn(tokens, width, device=device, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(vocabulary, (tokens,), device=device)
    exact = log_softmax(states.detach().float() @ head.weight.float().t(), -1).gather(1, targets[:, None])[:, 0]
    wide = copy.deepcopy(head)
    widen_head(wide)

    def plain() -> Tensor:
        return -cross_entropy(head(states).float(), targets, reduction="none")

    def chunked() -> Tensor:
        return head_logprobs(states, targets, wide, 1.0, chunk, entropy=False).logprobs

    def row(logprobs: Callable[[], Tensor]) -> dict[str, Any]:
        def run() -> None:
            torch.autograd.grad(logprobs().sum(), states)

        gap = (logprobs().detach() - exact).abs()
        found: dict[str, Any] = {"mean_error": float(f"{gap.mean():.2e}"), "max_error": float(f"{gap.max():.2e}")}
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        found["seconds"] = float(f"{seconds(run, device):.2e}")
        return found | (
            {"peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)} if device.type == "cuda" else {}
        )

    kernel = "Liger's" if device.type == "cuda" and fused_kernel() else "torch's"
    return {"cross_entropy": kernel, "eager": attempt(lambda: row(plain)), "chunked": attempt(lambda: row(chunked))}


def main(_: float) -> None:
    device = find_device()
    if device.type == "cuda":
        attention = attention_rows(device, (4096, 3000, 1000, 96), heads=16, width=128)
        head = head_rows(device, tokens=4096, width=3584, vocabulary=152_064, chunk=1024)
    else:
        attention = attention_rows(device, (20, 12), heads=4, width=16)
        head = head_rows(device, tokens=24, width=32, vocabulary=300, chunk=8)
    write_part("kernels", device, {"attention": attention, "head": head})
