"""Passes of a model on all cores. Results are taken in their order: a sum has the same bits on any number of cores."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor, nn

from tasks.core.processes.usable_cores import side_by_side

P = TypeVar("P")
T = TypeVar("T")


def passes_at_a_time(count: int, place: torch.device, processes: int = 1) -> int:
    """Number of `count` passes that run at once: on a CPU as many as there are cores for each of this machine's
    `processes` and each pass's threads."""
    workers = side_by_side(torch.get_num_threads(), processes) if place.type == "cpu" else 1
    return min(workers, count)


def map_passes(run: Callable[[P], T], passes: Sequence[P], place: torch.device, processes: int = 1) -> Iterator[T]:
    """The results of `run`, in the order of the passes; `passes_at_a_time` at a time."""
    workers = passes_at_a_time(len(passes), place, processes)
    if workers < 2:
        yield from map(run, passes)
        return
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)) as pool:
        yield from pool.map(run, passes)


def add_gradients(
    loss_of: Callable[[P], tuple[Tensor, T]], passes: Sequence[P], trained: Sequence[nn.Parameter], processes: int = 1
) -> list[T]:
    """Add the gradients of every pass's loss to those of `trained`. Returns what `loss_of` gives beside the losses.

    One pass at a time adds to what is there, without a second copy of the gradients; side by side each has its own.
    """
    place = trained[0].device
    if passes_at_a_time(len(passes), place, processes) < 2:
        return [_backward(*loss_of(one)) for one in passes]

    def differentiate(one: P) -> tuple[T, tuple[Tensor | None, ...]]:
        loss, beside = loss_of(one)
        return beside, torch.autograd.grad(loss, trained, allow_unused=True)

    found = []
    for beside, gradients in map_passes(differentiate, passes, place, processes):
        _add(trained, gradients)
        found.append(beside)
    return found


def _backward(loss: Tensor, beside: T) -> T:
    loss.backward()  # type: ignore[no-untyped-call]
    return beside


def _add(trained: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    for weight, gradient in zip(trained, gradients, strict=True):
        if gradient is not None:
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
