"""FSDP2 over a policy: every rank holds an equal part of each weight, and of its gradient and optimizer state.

The frozen base may be bfloat16 beside a float32 adapter: only what is trained needs one dtype, and gradients are summed
in it. Works on gloo and CPUs as on NCCL and GPUs (seen with torch 2.13; gloo knows neither the mean nor a scaled sum as
a reduction, which is one more reason for plain sums).
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from tasks.core.learner.model.decoder import decoder_layers


def shard(policy: nn.Module, size: int, device: torch.device, forward: Callable[..., Any], name: str) -> None:
    """Shard `policy` over all `size` ranks; its method `name`, which becomes `forward`, gathers what it needs.

    Each decoder layer is gathered when it is reached and let go after; embedding, last norm and head are held from a
    pass's start to the end of its backward pass, because the head is used chunk by chunk, in the backward pass again.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (size,))
    for layer in decoder_layers(policy):
        fully_shard(layer, mesh=mesh)
    fully_shard(policy, mesh=mesh, reshard_after_forward=False)
    for module in policy.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    setattr(policy, name, MethodType(forward, policy))
    register_fsdp_forward_method(policy, name)


def is_sharded(policy: nn.Module) -> bool:
    """Whether `shard` was applied."""
    return hasattr(policy, "set_requires_gradient_sync")


def set_gradient_sync(policy: Any, sync: bool) -> None:
    """Whether the next backward pass adds the gradients of a sharded policy up over the ranks."""
    policy.set_requires_gradient_sync(sync)


def full_tensor(tensor: Tensor) -> Tensor:
    """The whole of a tensor whose parts lie on the ranks (collective), detached; any other tensor as it is."""
    gather = getattr(tensor, "full_tensor", None)
    return (gather() if gather else tensor).detach()
