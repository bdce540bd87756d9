"""An untrained adapter moved away from zero: a zero one hides whatever is wrong with adapters."""

import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from tasks.core.policies.checkpoint_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, require
from tasks.core.policies.loading import opened

_SIZE = 0.02
"""Standard deviation of the drawn B: with A as LoRA draws it, a change of a few percent of the weights."""


def shake_adapter(source: Path, target: Path, seed: int) -> None:
    """Write the adapter of the checkpoint `source` into the new folder `target`, with B drawn from `seed`.

    The record of the delivery probe, which is of other weights, is left behind.
    """
    target.mkdir()
    shutil.copyfile(require(source / ADAPTER_CONFIG), target / ADAPTER_CONFIG)
    generator = torch.Generator().manual_seed(seed)
    with opened(source / ADAPTER_WEIGHTS) as file:
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    for name in tensors:
        if ".lora_B." in name:
            tensors[name] = _SIZE * torch.randn(tensors[name].shape, generator=generator)
    save_file(tensors, target / ADAPTER_WEIGHTS, metadata={"format": "pt"})
