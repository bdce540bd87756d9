"""The files in a checkpoint folder, by peft's and transformers' conventions. Needs no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.core.records.files import ArtifactError, read_json, remembered_digest

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
FULL_CONFIG = "config.json"
FULL_WEIGHTS = "model.safetensors"
DELIVERY_PROBE = "delivery_probe.json"
OPTIMIZER = "optimizer.safetensors"
"""A learner's, beside the policy; larger than the weights where all of them are trained."""
POLICY_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, FULL_WEIGHTS, FULL_CONFIG, DELIVERY_PROBE)
"""Files that make a folder a policy, adapter or whole, with the proof of its delivery. A learner's own state is not
among them.
"""


def weights_file(folder: Path) -> Path:
    """Return the safetensors file of a checkpoint folder of either kind."""
    return folder / ADAPTER_WEIGHTS if holds_adapter(folder) else folder / FULL_WEIGHTS


def holds_adapter(folder: Path) -> bool:
    """Return whether a checkpoint is a peft adapter, or the remains of an adapter; otherwise it holds all weights."""
    return (folder / ADAPTER_WEIGHTS).exists() or (folder / ADAPTER_CONFIG).exists()


def policy_digest(folder: Path) -> str:
    """Return the SHA-256 of a checkpoint's weights file, read once. Raises ArtifactError when there is none."""
    return remembered_digest(require(weights_file(folder)))


def require(path: Path) -> Path:
    """Return `path` if the file exists. Raises ArtifactError otherwise."""
    if not path.exists():
        raise ArtifactError(f"{path}: missing; run the stage that writes it (`dvc repro`)")
    return path


def read_model_config(folder: Path) -> Mapping[str, Any]:
    """Return the config.json of a model's folder; of a multimodal model, its text part. Raises ArtifactError."""
    config = read_json(folder / FULL_CONFIG)
    writes: Mapping[str, Any] = config.get("text_config") or config
    return writes
