"""Liger's kernel against our chunked head, in Triton's interpreter where there is no GPU."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tasks.policy_update.objective.fused_head import can_fuse
from tasks.policy_update.objective.logprobs import head_logprobs

missing = [name for name in ("triton", "liger_kernel") if importlib.util.find_spec(name) is None]

# Entropies are what the kernel does not know: asked for them, head_logprobs takes the chunked form on any device.
COMPARE = """
import torch
from torch import nn
from tasks.policy_update.objective.fused_head import fused_logprobs
from tasks.policy_update.objective.logprobs import head_logprobs

def figures(fused, dtype, trained):
    torch.manual_seed(0)
    head = nn.Linear(32, 300, bias=False, dtype=dtype).requires_grad_(trained)
    states = torch.randn(70, 32, dtype=dtype).requires_grad_()
    targets, scale = torch.randint(300, (70,)), torch.randn(70)
    logprobs = (
        fused_logprobs(states, targets, head) if fused
        else head_logprobs(states, targets, head, 1.0, 16, entropy=True).logprobs
    )
    (logprobs * scale).sum().backward()
    return [logprobs.detach(), states.grad] + ([head.weight.grad] if trained else [])

torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
    for trained in (False, True):
        for ours, theirs in zip(*(figures(fused, dtype, trained) for fused in (False, True)), strict=True):
            assert ours.dtype == theirs.dtype
            assert (ours.float() - theirs.float()).norm() <= tolerance * ours.float().norm(), (dtype, trained)
print("equal")
"""


@pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (extra gpu)")
def test_the_kernel_has_the_log_probs_and_gradients_of_the_chunked_head() -> None:
    environment = os.environ if torch.cuda.is_available() else {**os.environ, "TRITON_INTERPRET": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", COMPARE], env=environment, cwd=root, capture_output=True, text=True)
    assert done.stdout.strip() == "equal", done.stderr[-3000:]


def test_on_a_cpu_the_chunked_head_is_used() -> None:
    head, states = nn.Linear(8, 30, bias=False), torch.randn(5, 8)
    assert not can_fuse(states, head, 1.0, entropy=False)
    assert head_logprobs(states, torch.arange(5), head, 1.0, 2, entropy=False).logprobs.shape == (5,)
