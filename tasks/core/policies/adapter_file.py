"""A LoRA adapter as peft writes it, read and checked tensor by tensor."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tasks.core.records.files import ArtifactError, read_json

PREFIX = "base_model.model."
_PLAIN = {
    "use_dora": False,
    "bias": "none",
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": [],
}


def read_settings(file: Path) -> tuple[int, float]:
    """Return rank and scaling of an adapter. Raises ValueError unless it is plain LoRA."""
    settings = read_json(file)
    if settings.get("peft_type") != "LORA" or not {"r", "lora_alpha"} <= settings.keys():
        raise ValueError(f"{file}: not supported: peft_type must be LORA, with r and lora_alpha")
    for key, plain in _PLAIN.items():
        if settings.get(key) not in (None, plain):
            raise ValueError(f"{file}: {key}={settings[key]} is not supported, only plain LoRA")
    rank, alpha = int(settings["r"]), float(settings["lora_alpha"])
    return rank, alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)


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
    """Return all tensors of a checkpoint's file. Raises ArtifactError where it is missing or damaged."""
    try:
        return load_file(file)
    except FileNotFoundError:
        raise ArtifactError(f"{file}: missing; run the stage that writes it (`dvc repro`)") from None
    except SafetensorError as error:
        raise ArtifactError(f"{file}: damaged safetensors ({error}); delete its folder and run `dvc repro`") from None
