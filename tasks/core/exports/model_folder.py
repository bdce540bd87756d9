"""A trained policy as one folder that transformers, vLLM and the hub take: written beside, proven, put in place.

model*.safetensors, config.json        the weights with the adapter merged in (or adapter_model.safetensors and
                                       adapter_config.json)
tokenizer*, chat_template.jinja, ...   the base model's own files
README.md                              the card
proof.json, params.json                the logits' comparison; the parameters of the run
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasks.core.exports.exported_policy import ExportedPolicy
from tasks.core.exports.logits_proof import Conversation, LogitsProof, NotProven, prove, reference_logits
from tasks.core.exports.merged_weights import (
    SHARD_BYTES,
    Factors,
    StoredTensor,
    read_factors,
    size_in_bytes,
    stored_tensors,
    write_weights,
)
from tasks.core.exports.model_page import model_page
from tasks.core.policies.chat_settings import CHAT_SETTINGS
from tasks.core.policies.checkpoint_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, FULL_CONFIG, holds_adapter, require
from tasks.core.policies.digests import DIGESTS, MODEL_CARD
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError, read_json, replacing, write_json

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".gguf", ".pt", ".pth")
_OWN = (DIGESTS, MODEL_CARD, CHAT_SETTINGS)
"""Files of a base policy's folder that are not the model's."""


@dataclass(frozen=True)
class _Parts:
    """The tensors of an exported model."""

    stored: dict[str, StoredTensor]
    changes: Factors
    dtype: torch.dtype | None


def export_model(
    policy: ExportedPolicy, folder: Path, conversations: Sequence[Conversation], *, adapter: bool
) -> LogitsProof:
    """Write `policy` into the new folder, prove it, and put it in place; `adapter` leaves the base's weights out.

    Raises ArtifactError for a folder that holds something and a disk without room, CannotMerge and ValueError where the
    base model cannot take the adapter, and NotProven. Nothing is left behind then.
    """
    require_new(folder)
    if adapter and not holds_adapter(policy.checkpoint):
        raise ArtifactError(f"{policy.checkpoint}: all weights were trained, so there is no adapter to export")
    parts = _parts(policy)
    if not adapter:
        _require_room(folder, size_in_bytes(parts.stored, parts.dtype))
    expected = reference_logits(policy.base, policy.checkpoint, policy.config, conversations)
    with replacing(folder) as temporary:
        temporary.mkdir()
        _write_adapter(policy, temporary) if adapter else _write_merged(policy, parts, temporary)
        model, beside = (policy.base, temporary) if adapter else (temporary, None)
        try:
            proof = prove(model, beside, policy.config, conversations, expected)
        except NotProven as error:
            raise NotProven(f"{folder}: not exported, since {error}") from None
        write_document(temporary / "proof.json", proof)
        write_json(temporary / "params.json", dict(policy.knobs))
        (temporary / MODEL_CARD).write_text(model_page(policy, proof, adapter), encoding="utf-8")
        require_new(folder)
    return proof


def require_new(folder: Path) -> None:
    """Raise ArtifactError for a folder that holds something, or a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(f"{folder}: exists and is not an empty folder; name a new one")


def _parts(policy: ExportedPolicy) -> _Parts:
    """Return what the export holds. Reads headers and the adapter only."""
    if holds_adapter(policy.checkpoint):
        stored = stored_tensors(policy.base)
        return _Parts(stored, read_factors(policy.checkpoint, policy.base, stored), getattr(torch, policy.config.dtype))
    return _Parts(stored_tensors(policy.checkpoint), {}, None)


def _require_room(folder: Path, needed: int) -> None:
    above = next(parent for parent in folder.parents if parent.exists())
    free = shutil.disk_usage(above).free
    if needed > free:
        raise ArtifactError(
            f"{folder}: the model takes {needed / 1e6:,.1f} MB, and {free / 1e6:,.1f} MB are free there"
        )


def _write_merged(policy: ExportedPolicy, parts: _Parts, folder: Path) -> None:
    write_weights(folder, parts.stored, parts.changes, parts.dtype, SHARD_BYTES)
    _copy_companions(policy.base, folder)
    full = policy.checkpoint / FULL_CONFIG
    config = read_json(full if full.exists() else policy.base / FULL_CONFIG)
    if parts.dtype is not None:
        config = _in_dtype(config, policy.config.dtype)
    write_json(folder / FULL_CONFIG, config)


def _in_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Return config.json for weights in another dtype, which it names once or, with towers, in parts."""
    kept = {key: value for key, value in config.items() if key != "torch_dtype"}
    text = kept.get("text_config")
    if isinstance(text, dict):
        kept["text_config"] = _in_dtype(text, dtype)
    return kept | {"dtype": dtype}


def _write_adapter(policy: ExportedPolicy, folder: Path) -> None:
    shutil.copyfile(require(policy.checkpoint / ADAPTER_WEIGHTS), folder / ADAPTER_WEIGHTS)
    settings = read_json(policy.checkpoint / ADAPTER_CONFIG)
    if policy.hub_base is not None:
        settings |= {"base_model_name_or_path": policy.hub_base, "revision": policy.config.revision}
    write_json(folder / ADAPTER_CONFIG, settings)
    _copy_companions(policy.base, folder)


def _copy_companions(base: Path, folder: Path) -> None:
    """Copy the base model's files beside its weights and its config: tokenizer, chat template, licence, ..."""
    for file in sorted(base.iterdir()):
        if file.is_file() and file.name not in (*_OWN, FULL_CONFIG) and not file.name.endswith(_WEIGHTS):
            shutil.copyfile(file, folder / file.name)
