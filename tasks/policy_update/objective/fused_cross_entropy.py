"""Log-probs by Liger's fused head and cross-entropy: on a GPU where liger-kernel (the extra `gpu`) is installed.

Its kernel writes the gradient of a chunk's logits over them, in the head's dtype: no float32 copies. Like ours it makes
the logits in that dtype and sums in float32, so the two agree to rounding and either may give the old log-probs. It
knows neither a sampling temperature nor entropies: those are ours.

Not run on a GPU so far: a test compares values and gradients on a CPU, in Triton's interpreter. (cut-cross-entropy, the
alternative, was last released in January 2025 and has no float32 backward pass.)
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor, nn


def fused_logprobs(states: Tensor, targets: Tensor, head: nn.Linear) -> Tensor:
    """states [P, d] and targets [P] through `head` (d -> vocabulary) -> [P] float32. Needs liger-kernel."""
    kernel: Any = fused_kernel()
    return -kernel(states, head.weight, targets, bias=head.bias, reduction="none")  # type: ignore[no-any-return]


def can_fuse(states: Tensor, head: nn.Module, temperature: float, *, entropy: bool) -> bool:
    """Whether the kernel is here and computes what is asked for."""
    plain = temperature == 1 and not entropy and type(head) is nn.Linear
    return plain and states.is_cuda and fused_kernel() is not None


@cache
def fused_kernel() -> Callable[..., Tensor] | None:
    """Liger's function, None where it is not installed."""
    try:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy
    except ImportError:
        return None
    return liger_fused_linear_cross_entropy  # type: ignore[no-any-return]
