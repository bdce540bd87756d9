"""A model's weights with an adapter merged into them, file by file.

The base model is never loaded: each shard is made of single tensors that are read, changed and written, so that memory
holds one shard and the adapter. The weights are those that were trained: the base's in `policy.dtype`, plus B A times
the adapter's scaling, computed in float32 and rounded once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from tasks.core.policies.adapter_file import adapted_by, factors, read_settings, read_tensors
from tasks.core.policies.checkpoint_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, FULL_CONFIG, FULL_WEIGHTS
from tasks.core.policies.loading import opened
from tasks.core.records.files import ArtifactError, read_json, write_json

SHARD_BYTES = 4 * 2**30
INDEX = "model.safetensors.index.json"
_READABLE = 0o644
"""Mode of the weights, which safetensors writes for their owner alone."""
_TEXT_MODEL = "model.language_model."
"""Prefix of the text model's tensors in the files of a model with a vision tower."""
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "I32": 32, "I64": 64, "U16": 16, "U32": 32, "U64": 64}

Factors = dict[str, tuple[Tensor, Tensor]]
"""By module: A [rank, in] and B [out, rank], B times the adapter's scaling, in float32."""


class CannotMerge(ValueError):  # noqa: N818
    """This base model's weights can't hold the adapter; the message names the reason and what can be exported."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a safetensors file, of which only the header was read."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    """As safetensors names it: F32, BF16, I64, ..."""

    def bytes_as(self, dtype: torch.dtype | None) -> int:
        """Return the size in bytes, in another dtype if one is given."""
        known = dtype or _DTYPES.get(self.dtype)
        return prod(self.shape) * (known.itemsize if known else _BITS.get(self.dtype, 8) // 8)


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a model folder by name. Raises ArtifactError when it holds no safetensors."""
    found = {}
    for file in _weight_files(folder):
        with opened(file) as content:
            for name in content.keys():  # noqa: SIM118 - no dict
                part = content.get_slice(name)
                found[name] = StoredTensor(file, tuple(part.get_shape()), part.get_dtype())
    return found


def _weight_files(folder: Path) -> list[Path]:
    """Return the files that transformers reads: others may lie beside them, with the same weights once more."""
    if (folder / INDEX).exists():
        return [folder / name for name in sorted(set(read_json(folder / INDEX)["weight_map"].values()))]
    if (folder / FULL_WEIGHTS).exists():
        return [folder / FULL_WEIGHTS]
    raise ArtifactError(f"{folder}: holds neither {FULL_WEIGHTS} nor {INDEX}, so it can't be exported")


def read_factors(adapter: Path, base: Path, stored: Mapping[str, StoredTensor]) -> Factors:
    """Return the matrices of an adapter by the name of the base's tensor that they change.

    Reads no weight of the base. Raises CannotMerge, naming the reason, and ValueError, naming file and tensor, where
    the adapter does not fit.
    """
    config, file = read_json(base / FULL_CONFIG), adapter / ADAPTER_WEIGHTS
    _refuse_quantised(config, base)
    rank, _, scaling, _ = read_settings(adapter / ADAPTER_CONFIG)
    tensors, names = read_tensors(file), {name.replace(_TEXT_MODEL, "model.", 1): name for name in stored}
    found = {}
    for module, tensor in adapted_by(tensors, file).items():
        _refuse_tied(config, module)
        if (weight := names.get(f"{module}.weight")) is None:
            raise CannotMerge(
                f"{file}: tensor {tensor} belongs to {module}, but no file of {base} holds {module}.weight: it is an "
                "adapter of another base model, or this architecture's files name it otherwise (`--adapter` merges "
                "nothing)"
            )
        if len(stored[weight].shape) != 2:
            raise CannotMerge(f"{file}: tensor {tensor} belongs to {module}, which is no matrix in {base}")
        rows, columns = stored[weight].shape
        first, second = factors(tensors, module, (rows, columns), rank, file)
        found[weight] = first.float(), second.float() * scaling
    return found


def _refuse_quantised(config: Mapping[str, Any], base: Path) -> None:
    if quantised := config.get("quantization_config"):
        method = quantised.get("quant_method", "?")
        raise CannotMerge(
            f"{base}: the base model is quantised ({method}): merged weights would have to be quantised anew, which "
            "changes them all; export the adapter alone (`--adapter`)"
        )


def _refuse_tied(config: Mapping[str, Any], module: str) -> None:
    text = config.get("text_config") or {}
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    if tied and module.rpartition(".")[2] in ("lm_head", "embed_tokens"):
        raise CannotMerge(
            f"{module} shares its weight with the {'embedding' if module.endswith('lm_head') else 'head'} "
            "(tie_word_embeddings), so that merging would change both; export the adapter alone (`--adapter`)"
        )


def write_weights(
    folder: Path, stored: Mapping[str, StoredTensor], changes: Factors, dtype: torch.dtype | None, limit: int
) -> None:
    """Write the tensors with `changes` merged in, as shards of at most `limit` bytes.

    Tensors of the dtype that most weights have become `dtype`, if one is given. Others stay as they are, such as
    counts and the router's biases that some architectures keep in float32. Raises OSError where the disk is full.
    """
    targets = _targets(stored, dtype)
    sizes = {name: tensor.bytes_as(targets[name]) for name, tensor in stored.items()}
    plan = split_state_dict_into_shards_factory(
        sizes,
        get_storage_size=int,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=limit,
    )
    for file, names in plan.filename_to_tensors.items():
        tensors = {name: _changed(tensor, changes.get(name), targets[name]) for name, tensor in _read(stored, names)}
        try:
            save_file(tensors, folder / file, metadata={"format": "pt"})
            (folder / file).chmod(_READABLE)
        except SafetensorError as error:
            raise ArtifactError(f"{folder / file}: can't be written: {error}") from None
    if plan.is_sharded:
        write_json(folder / INDEX, {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename})


def size_in_bytes(stored: Mapping[str, StoredTensor], dtype: torch.dtype | None) -> int:
    """Return the bytes that `write_weights` writes."""
    return sum(stored[name].bytes_as(target) for name, target in _targets(stored, dtype).items())


def _targets(stored: Mapping[str, StoredTensor], dtype: torch.dtype | None) -> dict[str, torch.dtype | None]:
    """Return the dtype that each tensor gets; None: it keeps its own."""
    usual = _usual_dtype(stored)
    return {name: dtype if tensor.dtype == usual else None for name, tensor in stored.items()}


def _usual_dtype(stored: Mapping[str, StoredTensor]) -> str:
    count: Counter[str] = Counter()
    for tensor in stored.values():
        if tensor.dtype in _DTYPES:
            count[tensor.dtype] += prod(tensor.shape)
    return max(count, key=count.__getitem__, default="")


def _read(stored: Mapping[str, StoredTensor], names: list[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors by name, those of one file after another, so that each is opened once."""
    for file in sorted({stored[name].file for name in names}):
        with opened(file) as content:
            for name in (name for name in names if stored[name].file == file):
                yield name, content.get_tensor(name)


def _changed(tensor: Tensor, change: tuple[Tensor, Tensor] | None, dtype: torch.dtype | None) -> Tensor:
    rounded = tensor.to(dtype or tensor.dtype)
    if change is None:
        return rounded.contiguous()
    first, second = change
    return (rounded.float() + second @ first).to(rounded.dtype)
