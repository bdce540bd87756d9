"""Passes of a model on all cores.

Results are added in the passes' order, so a sum's bits do not depend on the cores.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from tasks.core.processes.resources import side_by_side

P = TypeVar("P")
T = TypeVar("T")


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Compute with one thread per operation on a CPU meanwhile: several may sum in another order."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def passes_at_a_time(count: int, device: torch.device, processes: int = 1) -> int:
    """Return how many of `count` passes run at once.

    On a CPU this is the number of cores for each of this machine's `processes`, divided by each pass's threads.
    """
    workers = side_by_side(torch.get_num_threads(), processes) if device.type == "cpu" else 1
    return min(workers, count)


def map_passes(run: Callable[[P], T], passes: Sequence[P], device: torch.device, processes: int = 1) -> Iterator[T]:
    """Yield the results of `run` in the order of the passes; run `passes_at_a_time` at a time."""
    workers = passes_at_a_time(len(passes), device, processes)
    if workers < 2:
        yield from map(run, passes)
        return
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)) as pool:
        yield from pool.map(run, passes)


def add_gradients(
    loss_of: Callable[[P], tuple[Tensor, T]], passes: Sequence[P], trained: Sequence[nn.Parameter], processes: int = 1
) -> list[T]:
    """Add the gradients of every pass's loss to those of `trained`. Return the other results of `loss_of`.

    A single pass at a time adds to the present gradients without a second copy; each parallel pass has a copy of its
    own.
    """
    device = trained[0].device
    if passes_at_a_time(len(passes), device, processes) < 2:
        return [_backward(*loss_of(item)) for item in passes]

    def differentiate(item: P) -> tuple[T, tuple[Tensor | None, ...]]:
        loss, beside = loss_of(item)
        return beside, torch.autograd.grad(loss, trained, allow_unused=True)

    extras = []
    for beside, gradients in map_passes(differentiate, passes, device, processes):
        _add(trained, gradients)
        extras.append(beside)
    return extras


def _backward(loss: Tensor, beside: T) -> T:
    loss.backward()  # type: ignore[no-untyped-call]
    return beside


def _add(trained: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    for weight, gradient in zip(trained, gradients, strict=True):
        if gradient is not None:
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
