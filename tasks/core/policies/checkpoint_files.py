"""Names of the files in a checkpoint folder, by peft's and transformers' conventions. Needs no torch."""

from pathlib import Path

from tasks.core.records.files import ArtifactError
from tasks.core.records.remembered_digests import remembered_digest
from tasks.core.records.scores import Candidate

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
FULL_CONFIG = "config.json"
FULL_WEIGHTS = "model.safetensors"
DELIVERY_PROBE = "delivery_probe.json"
POLICY_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, FULL_WEIGHTS, FULL_CONFIG, DELIVERY_PROBE)
"""Files that make a folder a policy, of either kind, with the proof of its delivery; a learner's own state is none of
them."""


def weights_file(folder: Path) -> Path:
    """The safetensors file of a checkpoint folder, of either kind."""
    return folder / ADAPTER_WEIGHTS if holds_adapter(folder) else folder / FULL_WEIGHTS


def holds_adapter(folder: Path) -> bool:
    """Whether a checkpoint is a peft adapter, or what is left of one; else all weights."""
    return (folder / ADAPTER_WEIGHTS).exists() or (folder / ADAPTER_CONFIG).exists()


def policy_digest(folder: Path) -> str:
    """SHA-256 of the weights file of a checkpoint, read once. Raises ArtifactError when there is none."""
    return remembered_digest(require(weights_file(folder)))


def require(path: Path) -> Path:
    """`path`, if there is such a file. Raises ArtifactError."""
    if not path.exists():
        raise ArtifactError(f"{path}: missing; run the stage that writes it (`dvc repro`)")
    return path


def require_evaluated_policy(folder: Path, chosen: Candidate) -> None:
    """Raise ArtifactError when the weights in `folder` are not those that were evaluated as `chosen`."""
    found = policy_digest(folder)
    if found != chosen.adapter_digest:
        raise ArtifactError(
            f"{folder}: the weights of {chosen.iteration} ({found[:12]}...) are not those that were evaluated on "
            f"dev ({chosen.adapter_digest[:12]}...); restore them with `dvc checkout` or run `dvc repro`"
        )
