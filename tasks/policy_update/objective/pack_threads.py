"""Packs on all cores. Results come in the order of the packs: a sum over them has the same bits on any number."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from tasks.core.processes.usable_cores import side_by_side
from tasks.policy_update.packing import Pack

P = TypeVar("P", bound=Pack)
T = TypeVar("T")


def packs_side_by_side(packs: Sequence[Pack], processes: int) -> int:
    """Number of packs passed at a time: on a CPU as many as there are cores for each of this machine's `processes` and
    each pass's threads."""
    workers = 1 if packs[0].input_ids.is_cuda else side_by_side(torch.get_num_threads(), processes)
    return min(workers, len(packs))


def map_packs(run: Callable[[P], T], packs: Sequence[P], processes: int) -> Iterator[T]:
    """The results of `run`, in the order of the packs; `packs_side_by_side` at a time."""
    workers = packs_side_by_side(packs, processes)
    if workers < 2:
        yield from map(run, packs)
        return
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)) as pool:
        yield from pool.map(run, packs)
