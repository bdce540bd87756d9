"""A base model that is built without weights and filled after sharding: no process ever holds all of it.

This module does not convert names and shapes of tensors, as transformers' own loader does for some architectures. The
files must hold the tensors under the names that the model has, as those of the Qwen2 and Llama families do, or, for a
model with a vision tower, under those of its text model (Qwen3.5).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from tasks.core.config.policy import PolicyConfig
from tasks.core.policies.checkpoint_files import FULL_CONFIG, require
from tasks.core.policies.loading import ONE_BUILDS, freeze_base, is_lora, opened, read_tensor, untied_tensors
from tasks.core.records.files import ArtifactError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_TEXT_MODEL = "model.language_model."
"""Prefix of the text model's tensors in the files of a model with a vision tower."""


def empty_base_model(folder: Path, config: PolicyConfig) -> "PreTrainedModel":
    """Build `load_base_model`'s model with parameters on the meta device and real buffers (rotary frequencies)."""
    require(folder / FULL_CONFIG)
    with ONE_BUILDS:
        model = _empty(folder, getattr(torch, config.dtype))
    model.tie_weights()
    return freeze_base(model, config)


def _empty(folder: Path, dtype: torch.dtype) -> "PreTrainedModel":
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = AutoConfig.from_pretrained(folder, local_files_only=True)
    with init_empty_weights(include_buffers=False):
        return AutoModelForCausalLM.from_config(sizes, dtype=dtype)  # type: ignore[no-any-return, no-untyped-call]


def allocate(policy: nn.Module, device: torch.device) -> None:
    """Give the parameters of an empty policy (sharded: this process's parts) memory on `device`, but no values yet."""
    held = {name: buffer.clone() for name, buffer in policy.named_buffers()}
    policy.to_empty(device=device)
    for name, buffer in policy.named_buffers():
        buffer.copy_(held[name])
    model: Any = policy.get_base_model() if is_lora(policy) else policy  # type: ignore[operator]
    model.tie_weights()


def fill_base(policy: nn.Module, folder: Path, *, quiet: bool = False) -> None:
    """Read the base model's weights; of a sharded policy this process's parts. Raises ArtifactError naming a tensor."""
    left = _base_tensors(policy)
    with tqdm(total=len(left), desc="base model", unit="tensor", leave=False, disable=quiet) as bar:
        for path in sorted(folder.glob("*.safetensors")):
            bar.update(_fill_from(path, left))
    if left:
        raise ArtifactError(
            f"{folder}: no file holds tensor {min(left)} under this name, so the ranks cannot read their parts of it; "
            "update.distributed.sharding: replicated loads the model whole, on every rank"
        )


@torch.no_grad()
def _fill_from(path: Path, left: dict[str, Tensor]) -> int:
    """Fill the tensors of `left` that the file holds, and remove them from `left`; return their number."""
    with opened(path) as file:
        names = {key.replace(_TEXT_MODEL, "model.", 1): key for key in file.keys()}  # noqa: SIM118
        names_here = sorted(left.keys() & names.keys())
        for tensor_name, name in ((tensor_name, names[tensor_name]) for tensor_name in names_here):
            tensor, shape = left.pop(tensor_name), file.get_slice(name).get_shape()
            if shape != list(tensor.shape):
                raise ArtifactError(f"{path}: tensor {name} has shape {shape}, not {list(tensor.shape)}")
            tensor.copy_(read_tensor(file, name, tensor))
    return len(names_here)


def _base_tensors(policy: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that the base model's files hold, by their names there: all except the adapter."""
    return {
        name.removeprefix("base_model.model.").replace(".base_layer.", "."): tensor
        for name, tensor in untied_tensors(policy).items()
        if ".lora_" not in name
    }
