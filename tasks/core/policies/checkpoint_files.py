"""The files of checkpoints, by peft's and transformers' conventions, and digests of base policies. Needs no torch."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from shutil import copyfile
from typing import Any

from tasks.core.records.files import ArtifactError, digest, read_json, remembered_digest, write_json

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
FULL_CONFIG = "config.json"
FULL_WEIGHTS = "model.safetensors"
DELIVERY_PROBE = "delivery_probe.json"
AGAIN = "fetch or copy it again, or, where a stage wrote it, delete its folder and run `dvc repro`"
"""Remedy for a damaged file, which may be the user's own."""
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


DIGESTS = "digests.json"
"""A base policy's map from file name to SHA-256: exposes a damaged checkout before anything is trained on it."""
MODEL_CARD = "README.md"
_PART_BYTES = 2**20


def copy_verified(source: Path, folder: Path) -> None:
    """Copy the files of a base policy; check each against the policy's digests, if it has any. Each file is read once.

    Raises ArtifactError naming a file that is missing or altered; files copied until then stay in `folder`.
    """
    expected = read_json(source / DIGESTS) if (source / DIGESTS).exists() else {}
    for name in expected:
        if not (source / name).exists():
            raise ArtifactError(f"{source / name}: missing; restore it with `git checkout -- {source}`")
    for file in sorted(file for file in source.iterdir() if file.is_file()):
        if file.name not in expected:
            copyfile(file, folder / file.name)
        elif _copy(file, folder / file.name) != expected[file.name]:
            raise ArtifactError(f"{file}: altered (its digest is not that of {DIGESTS}); restore it from git")


def _copy(file: Path, target: Path) -> str:
    """Copy a file; return the SHA-256 of the copied bytes."""
    total = hashlib.sha256()
    with file.open("rb") as source, target.open("wb") as copy:
        while part := source.read(_PART_BYTES):
            total.update(part)
            copy.write(part)
    return total.hexdigest()


def write_digests(folder: Path) -> None:
    """Record the digests of all files of a base policy except its model card."""
    files = (file for file in folder.iterdir() if file.name not in (DIGESTS, MODEL_CARD))
    write_json(folder / DIGESTS, {file.name: digest(file) for file in files})
