"""The proof that an exported folder is the policy: its logits beside those of base and adapter, and of the base.

The policy's logits are computed by transformers with peft's adapter beside the weights, the exported folder's in a
fresh process that imports nothing of loopline.
"""

import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tasks.core.config.policy import PolicyConfig
from tasks.core.exports import logits as script
from tasks.core.interpreters import inherited_variables
from tasks.core.policies.checkpoint_files import holds_adapter
from tasks.core.policies.loading import device, load_base_model
from tasks.core.policies.policy_weights import PolicyWeights, require_recorded
from tasks.core.records.documents import Count, Document, Positive, Share

ROUNDING = {"float32": 1e-4, "bfloat16": 0.03}
"""The most that logits may differ by, as a share of their size (root mean squares), for rounding alone.

An adapter beside the weights and the same one merged differ by 5e-7 of it in float32 and by 0.007 in bfloat16 in the
embedded policy; in float32 by 9e-7 in the thirty layers of SmolLM2.
"""
MOST_TOKENS = 1024
_POSITIONS = 32


class NotProven(ValueError):  # noqa: N818
    """The exported folder is not the policy, or can't be told from the base model."""


@dataclass(frozen=True)
class Conversation:
    """A recorded conversation, and the positions whose logits are compared: those from which the policy sampled."""

    token_ids: tuple[int, ...]
    positions: tuple[int, ...]


class Difference(Document):
    """Difference of the exported folder's logits from another model's."""

    rms: Positive
    """Root mean square over positions and vocabulary."""
    largest: Positive
    same_choice: Share
    """Share of the positions at which both find the same token likeliest."""


class LogitsProof(Document):
    """proof.json: the comparison that an exported folder passed."""

    dtype: str
    device: str
    conversations: Count
    positions: Count
    rms_of_logits: Positive
    limit: Positive
    """The largest rms that counts as rounding of `dtype`."""
    from_policy: Difference
    """From base and adapter, as they were trained."""
    from_base: Difference
    packages: dict[str, str]
    """Versions with which the folder was loaded."""


@dataclass(frozen=True)
class Reference:
    """Logits [positions, vocabulary] over all conversations, float32 on the CPU."""

    base: Tensor
    policy: Tensor


def conversation(token_ids: Sequence[int], policy_mask: Sequence[bool]) -> Conversation:
    """Return a rollout as the proof takes it: its beginning, and up to 32 positions spread over the sampled tokens."""
    ids = tuple(token_ids[:MOST_TOKENS])
    sampled = [place - 1 for place, mine in enumerate(policy_mask[: len(ids)]) if mine and place > 0]
    step = max(1, -(-len(sampled) // _POSITIONS))
    return Conversation(ids, tuple(sampled[::step] or [len(ids) - 1]))


def reference(
    base: Path, checkpoint: Path, config: PolicyConfig, conversations: Sequence[Conversation]
) -> tuple[Reference, Any]:
    """Return the logits of the base model and of the policy, and the policy: peft's model, or the trained one.

    Raises ValueError where the checkpoint does not fit, ArtifactError where an adapter was trained on another base, and
    NotProven where the two are the same: nothing was trained, so that there is nothing to export.
    """
    from peft import PeftModel

    policy: Any = load_base_model(base, config)
    weights = PolicyWeights(policy)
    for fitting in (checkpoint, None):
        weights.load(fitting)
    of_base = _logits(policy, conversations)
    if not holds_adapter(checkpoint):
        weights.load(checkpoint)
    else:
        policy = PeftModel.from_pretrained(policy, str(checkpoint)).eval()
        require_recorded(policy, checkpoint, config, str(base))
    found = Reference(of_base, _logits(policy, conversations))
    if torch.equal(found.base, found.policy):
        raise NotProven(f"{checkpoint}: the policy is the base model itself: training changed no logit")
    return found, policy


def prove(
    model: Path, adapter: Path | None, config: PolicyConfig, conversations: Sequence[Conversation], expected: Reference
) -> LogitsProof:
    """Load the folder `model` (with an adapter's folder, if one is given) in a fresh process, and compare its logits.

    Raises NotProven where they are not the policy's, or are the base's as well.
    """
    gc.collect()  # the reference's parts refer to each other; two models might not fit
    found, packages = _logits_of_folder(model, adapter, config, conversations)
    if found.shape != expected.policy.shape:
        raise NotProven(f"its logits have the shape {list(found.shape)}, the policy's {list(expected.policy.shape)}")
    size = _rms(expected.policy)
    proof = LogitsProof(
        dtype=config.dtype,
        device=str(device(config)),
        conversations=len(conversations),
        positions=len(found),
        rms_of_logits=size,
        limit=ROUNDING[config.dtype] * size,
        from_policy=_difference(found, expected.policy),
        from_base=_difference(found, expected.base),
        packages=packages,
    )
    limit = proof.limit
    if proof.from_policy.rms > limit:
        raise NotProven(
            f"its logits are not the policy's: they differ by {proof.from_policy.rms:.3g} (root mean square), and "
            f"rounding in {proof.dtype} explains at most {limit:.3g}; from the base model's they differ by "
            f"{proof.from_base.rms:.3g} (`--adapter` merges nothing)"
        )
    if proof.from_base.rms <= limit:
        raise NotProven(
            f"its logits can't be told from the base model's: they differ by {proof.from_base.rms:.3g} (root mean "
            f"square), and rounding in {proof.dtype} explains {limit:.3g}; what was trained would be lost in these "
            "weights, so export the adapter alone (`--adapter`)"
        )
    return proof


def _logits_of_folder(
    model: Path, adapter: Path | None, config: PolicyConfig, conversations: Sequence[Conversation]
) -> tuple[Tensor, dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "logits.safetensors"
        request = {
            "model": str(model.resolve()),
            "adapter": None if adapter is None else str(adapter.resolve()),
            "dtype": config.dtype,
            "device": str(device(config)),
            "threads": config.cpu_threads,
            "conversations": [each.token_ids for each in conversations],
            "positions": [each.positions for each in conversations],
            "out": str(out),
        }
        done = subprocess.run(
            [sys.executable, "-I", script.__file__],
            input=json.dumps(request),
            env=inherited_variables() | {"HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise NotProven(f"transformers alone can't load it: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if answer["loaded"]:
            raise NotProven(f"the process that loaded it had imported {', '.join(answer['loaded'])}")
        return _joined(load_file(out)), answer["packages"]


def _logits(model: Any, conversations: Sequence[Conversation]) -> Tensor:
    ids, positions = [each.token_ids for each in conversations], [each.positions for each in conversations]
    return _joined(script.logits_of(model, ids, positions))


def _joined(parts: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([parts[str(number)] for number in range(len(parts))])


def _difference(found: Tensor, expected: Tensor) -> Difference:
    apart = found - expected
    same = (found.argmax(-1) == expected.argmax(-1)).double().mean()
    return Difference(rms=_rms(apart), largest=float(apart.abs().max()), same_choice=float(same))


def _rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())
