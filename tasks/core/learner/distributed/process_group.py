"""The processes that make one update together. Alone, nothing here computes anything.

What does not depend on how many there are: the shuffling (every rank draws the same), the loss and its divisor (sums
over ranks, never means), the norm that is clipped, and the KL estimate that ends an update early.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
from torch import Tensor

from tasks.core.config.update import DistributedConfig


@dataclass(frozen=True)
class ProcessGroup:
    """This process's place among the processes of an update."""

    rank: int = 0
    size: int = 1
    local_size: int = 1
    """Processes on this machine, which share its cores."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """The device on which the group can add tensors up."""

    @property
    def is_main(self) -> bool:
        """Whether this is the one that writes, and shows progress."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of the ranks' tensors of equal shape, on every rank and in the same bits; collective."""
        if self.size == 1:
            return tensor
        total = tensor.to(self.device, copy=True)
        torch.distributed.all_reduce(total)
        return total.to(tensor.device)


SINGLE = ProcessGroup()


@contextmanager
def join_process_group(config: DistributedConfig, device: torch.device) -> Iterator[ProcessGroup]:
    """Meet the other ranks at the place that torchrun put into the environment (RANK, WORLD_SIZE, MASTER_ADDR, ...).

    One GPU per local rank and NCCL, or the CPU and gloo.
    """
    local = int(os.environ["LOCAL_RANK"])
    if device.type == "cuda":
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=config.timeout_s)
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
