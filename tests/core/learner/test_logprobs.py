"""Liger's cross-entropy compared with torch's in the chunked head, in Triton's interpreter where there is no GPU."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tasks.core.learner.logprobs import can_fuse, head_logprobs

missing = [name for name in ("triton", "liger_kernel") if importlib.util.find_spec(name) is None]

COMPARE = """
import torch
from torch import nn
from tasks.core.policies.head import use_float32_logits
from tasks.core.learner import logprobs
from tasks.core.learner.logprobs import head_logprobs

class Model(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head
    def get_output_embeddings(self):
        return self.head

def figures(fused, dtype, trained):
    torch.manual_seed(0)
    logprobs.can_fuse = lambda logits, entropy: fused
    head = nn.Linear(32, 300, bias=False, dtype=dtype).requires_grad_(trained)
    use_float32_logits(Model(head))
    states = torch.randn(70, 32, dtype=dtype).requires_grad_()
    targets, scale = torch.randint(300, (70,)), torch.randn(70)
    found = head_logprobs(states, targets, head, 0.7, 16, entropy=False).logprobs
    (found * scale).sum().backward()
    return [found.detach(), states.grad] + ([head.weight.grad] if trained else [])

torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
    for trained in (False, True):
        for ours, theirs in zip(*(figures(fused, dtype, trained) for fused in (False, True)), strict=True):
            assert ours.dtype == theirs.dtype
            allowed = 1e-5 if ours.ndim == 1 else tolerance
            assert (ours.float() - theirs.float()).norm() <= allowed * ours.float().norm(), (dtype, trained)
print("equal")
"""


@pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (extra gpu)")
def test_the_kernel_has_the_log_probs_and_gradients_of_torch_s() -> None:
    environment = os.environ if torch.cuda.is_available() else {**os.environ, "TRITON_INTERPRET": "1"}
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", COMPARE], env=environment, cwd=root, capture_output=True, text=True)
    assert done.stdout.strip() == "equal", done.stderr[-3000:]


def test_on_a_cpu_torch_s_own_is_used() -> None:
    head, states = nn.Linear(8, 30, bias=False), torch.randn(5, 8)
    assert not can_fuse(head(states), entropy=False)
    assert head_logprobs(states, torch.arange(5), head, 1.0, 2, entropy=False).logprobs.shape == (5,)
