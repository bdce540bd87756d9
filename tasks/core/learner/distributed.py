"""An update on several ranks: the process group, and weights sharded over it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from tasks.core.learner.model import decoder_layers

LONGEST_WAIT_S = 1800
"""Seconds that one rank waits for the others before it fails, and the update with it: it loads a model of any size."""


@dataclass(frozen=True)
class ProcessGroup:
    """This process's rank among the processes of an update."""

    rank: int = 0
    size: int = 1
    local_size: int = 1
    """Number of processes on this machine, which share its cores."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """Device on which the group adds tensors up."""

    @property
    def is_main(self) -> bool:
        """Return whether this process is the one that writes files and shows progress."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors of equal shape, the same bits on every rank (collective)."""
        if self.size == 1:
            return tensor
        total = tensor.to(self.device, copy=True)
        torch.distributed.all_reduce(total)
        return total.to(tensor.device)


SINGLE = ProcessGroup()


@contextmanager
def join_process_group(device: torch.device) -> Iterator[ProcessGroup]:
    """Meet the other ranks at the address in the environment, where their launcher put it (RANK, MASTER_ADDR, ...).

    Uses one GPU per local rank and NCCL, or the CPU and gloo.
    """
    local = int(os.environ["LOCAL_RANK"])
    if device.type == "cuda":
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=LONGEST_WAIT_S)
    )
    try:
        yield ProcessGroup(
            rank=torch.distributed.get_rank(),
            size=torch.distributed.get_world_size(),
            local_size=int(os.environ["LOCAL_WORLD_SIZE"]),
            device=device,
        )
    finally:
        torch.distributed.destroy_process_group()


def shard(policy: nn.Module, size: int, device: torch.device, forward: Callable[..., Any], name: str) -> None:
    """Shard `policy` over all `size` ranks, and set `forward` as its method `name`, which gathers the weights it needs.

    Each decoder layer is gathered when a pass reaches it and freed after. Embedding, last norm and head stay gathered
    from the start of a pass to the end of its backward pass, because the head is used chunk by chunk, also in the
    backward pass.
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
    """Return whether `shard` was applied to `policy`."""
    return hasattr(policy, "set_requires_gradient_sync")


def set_gradient_sync(policy: Any, sync: bool) -> None:
    """Set whether the next backward pass of a sharded policy adds its gradients up over the ranks."""
    policy.set_requires_gradient_sync(sync)


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a tensor whose parts lie on the ranks (collective), detached; return other tensors as they are."""
    gather = getattr(tensor, "full_tensor", None)
    return (gather() if gather else tensor).detach()
