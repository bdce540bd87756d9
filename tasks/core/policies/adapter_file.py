"""A LoRA adapter as peft writes it, read and checked tensor by tensor."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tasks.core.records.files import ArtifactError, read_json

PREFIX = "base_model.model."
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "alora_invocation_tokens": (None, []),
    "modules_to_save": (None, []),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "exclude_modules": (None, []),
    "layers_to_transform": (None, []),
    "trainable_token_indices": (None, []),
    "target_parameters": (None, []),
}
"""Settings of an adapter, and the values with which it is plain LoRA."""


class LoraFile(NamedTuple):
    """The settings of a plain LoRA adapter."""

    rank: int
    alpha: float
    scaling: float
    targets: str | Sequence[str]
    """Names of modules, or an expression for them."""


def read_settings(file: Path) -> LoraFile:
    """Return the settings of an adapter. Raises ArtifactError unless it is plain LoRA."""
    settings = {"peft_type": None} | read_json(file)
    for name, values in _PLAIN.items():
        if name in settings and settings[name] not in values:
            raise ArtifactError(f"{file}: {name} is {settings[name]!r}: only plain LoRA adapters are supported")
    rank, alpha, targets = (settings.get(name) for name in ("r", "lora_alpha", "target_modules"))
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise ArtifactError(f"{file}: r and lora_alpha must be numbers, not {rank!r} and {alpha!r}")
    if not targets or not isinstance(targets, str | list):
        raise ArtifactError(f"{file}: target_modules must be names, not {targets!r}")
    return LoraFile(rank, alpha, alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank), targets)


def adapted_by(names: Iterable[str], file: Path) -> dict[str, str]:
    """Return the modules that an adapter's tensors belong to, each with one of its tensors. Raises ValueError."""
    return {_module_of(name, file): name for name in sorted(names)}


def _module_of(name: str, file: Path) -> str:
    module, _, side = name.removeprefix(PREFIX).rpartition(".lora_")
    if not name.startswith(PREFIX) or side not in ("A.weight", "B.weight"):
        raise ValueError(f"{file}: tensor {name} is not part of a LoRA adapter")
    return module


def factors(
    tensors: Mapping[str, Tensor], module: str, shape: tuple[int, int], rank: int, file: Path
) -> tuple[Tensor, Tensor]:
    """Return A [rank, in] and B [out, rank] of a module whose weight has `shape` [out, in].

    Raises ValueError where one is missing or has another shape.
    """
    rows, columns = shape
    return (
        fitting(tensors, f"{PREFIX}{module}.lora_A.weight", (rank, columns), file),
        fitting(tensors, f"{PREFIX}{module}.lora_B.weight", (rows, rank), file),
    )


def fitting(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], file: Path) -> Tensor:
    """Return a tensor. Raises ValueError where it is missing or has another shape than the base model needs."""
    if name not in tensors:
        raise ValueError(f"{file}: tensor {name} is missing")
    if tuple(tensors[name].shape) != shape:
        raise ValueError(f"{file}: tensor {name} has shape {tuple(tensors[name].shape)}, the base model needs {shape}")
    return tensors[name]


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Return all tensors of a checkpoint's file. Raises ArtifactError where it is missing, damaged or not finite."""
    try:
        tensors = load_file(file)
    except FileNotFoundError:
        raise ArtifactError(f"{file}: missing; run the stage that writes it (`dvc repro`)") from None
    except SafetensorError as error:
        raise ArtifactError(f"{file}: damaged safetensors ({error}); delete its folder and run `dvc repro`") from None
    require_finite(tensors, file)
    return tensors


def require_finite(tensors: Mapping[str, Tensor], where: Path) -> None:
    """Raise ArtifactError, naming the first tensor with a NaN or an infinite number."""
    for name, tensor in tensors.items():
        if tensor.element_size() > 1 and not tensor.isfinite().all():  # quantised weights are no numbers by themselves
            raise ArtifactError(f"{where}: tensor {name} is not finite (NaN, or an infinite number)")
