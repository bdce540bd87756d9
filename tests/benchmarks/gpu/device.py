"""What the parts of the GPU check share: the device, whose results these are, and how a part says what it lacks."""

import gc
import time
from collections.abc import Callable
from typing import Any

import torch
from result_file import write_result
from transformers.utils import logging

from tasks.core.interpreters import InterpreterUnavailable
from tasks.core.records.files import ArtifactError


def find_device() -> torch.device:
    """CUDA if torch sees any, else the CPU with one thread: then a part does the same in little."""
    logging.set_verbosity_error()
    if torch.cuda.is_available():
        return torch.device("cuda")
    torch.set_num_threads(1)
    return torch.device("cpu")


def describe(device: torch.device) -> dict[str, Any]:
    """Return the card's name and its CUDA; None where there is none."""
    if device.type == "cpu":
        return {"device": "CPU, in little", "cuda": None}
    return {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}


def write_part(name: str, device: torch.device, figures: dict[str, Any]) -> None:
    """Write results/gpu/<name>.json; what ran in little never takes the place of a GPU's figures."""
    folder = "gpu" if device.type == "cuda" else "gpu_in_little"
    command = {"command": f"tests/benchmarks/gpu/check.sh {name}"}
    write_result(f"{folder}/{name}", describe(device) | command | figures)


def attempt(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Findings of `measure`, or why there are none: a missing piece ends no other measurement."""
    try:
        return measure()
    except ImportError as error:
        return {"skipped": f"not installed: {error.name or error}"}
    except (InterpreterUnavailable, ArtifactError) as error:  # vLLM, or a model's weights
        return {"skipped": str(error)[:300]}
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return {"skipped": "out of memory"}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {str(error)[:300]}"}


def seconds(run: Callable[[], object], device: torch.device, rounds: int = 3) -> float:
    """Seconds of the fastest of a few runs after a first one."""
    run()
    best = float("inf")
    for _ in range(rounds):
        synchronize(device)
        begin = time.perf_counter()
        run()
        synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return best


def held_bytes(device: torch.device) -> int:
    """Return the bytes of all tensors on the device: torch's count on a GPU, on a CPU those that Python can reach."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated())
    tensors = (one for one in gc.get_objects() if isinstance(one, torch.Tensor))
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    return sum(storages.values())


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
