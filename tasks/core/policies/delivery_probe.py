"""Write and read the record that proves that an engine samples from a policy (records/delivery_probe.py)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from tasks.core.config.policy import PolicyConfig
from tasks.core.policies.checkpoint_files import DELIVERY_PROBE, policy_digest
from tasks.core.policies.loading import device
from tasks.core.records.delivery_probe import DeliveryProbe, ProbeSequence
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError

if TYPE_CHECKING:
    from tasks.core.policies.chat_format import ChatFormat

COMMON_IDS = 256
"""Ids below this exist in every vocabulary; an id that a server's vocabulary lacks would kill the server."""
LONGEST_LASTING = 64
_DIGITS = 7
"""Decimals of a log-prob: the precision of a float32 of 1."""


def common_ids(vocabulary: int) -> list[int]:
    """Return token ids that mean nothing together and that every model knows."""
    return [(17 * index + index * index) % min(COMMON_IDS, vocabulary) for index in range(LONGEST_LASTING // 2)]


@torch.no_grad()
def sequence_logprobs(model: nn.Module, sequences: Iterable[Sequence[int]]) -> list[list[float]]:
    """Return log-probs of each sequence's ids except the first, at temperature 1, by one forward pass each."""
    device, logprobs = next(model.parameters()).device, []
    for ids in sequences:
        sequence = torch.tensor(list(ids), device=device)
        logits = model(sequence[None]).logits[0, :-1].float()
        logprobs.append(logits.log_softmax(-1).gather(1, sequence[1:, None])[:, 0].tolist())
    return logprobs


def probe_sequence(
    ids: Sequence[int],
    logprobs: Sequence[float],
    base: Sequence[float] | None = None,
    previous: Sequence[float] | None = None,
) -> ProbeSequence:
    """Return a sequence of a record, from floats of any precision."""
    return ProbeSequence(
        token_ids=tuple(ids),
        logprobs=_rounded(logprobs),
        base=None if base is None else _rounded(base),
        previous=None if previous is None else _rounded(previous),
    )


def write_probe(folder: Path, probe: DeliveryProbe) -> None:
    """Write the record into the policy's folder."""
    write_document(folder / DELIVERY_PROBE, probe)


def read_probe(folder: Path) -> DeliveryProbe | None:
    """Return the record in a policy's folder; None without one (a policy from elsewhere, or of an earlier version).

    Raises ArtifactError for a record that is damaged or belongs to other weights.
    """
    path = folder / DELIVERY_PROBE
    if not path.exists():
        return None
    probe = read_document(path, DeliveryProbe)
    if probe.weights != policy_digest(folder):
        raise ArtifactError(
            f"{path}: weights: written for other weights than those beside it; run the stage that wrote it, or delete "
            "it, and the engine computes one"
        )
    return probe


def _rounded(logprobs: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, _DIGITS) for value in logprobs)


_SAID = (
    "Name every letter of the alphabet, then count from one to twenty.",
    "for page in range(10):\n    print(apis.api_docs.show_app_descriptions(app_name='spotify', page_index=page))",
    '{"status": "success", "items": [{"id": 12, "amount": 7.5, "note": "rent"}, {"id": 13, "amount": 40.0}]}',
)


def lasting_sequences(chat: "ChatFormat", vocabulary: int) -> list[list[int]]:
    """Return token ids in every record of a run: ids that any model knows, then the openings of some conversations."""
    openings = [chat.prompt_ids([{"role": "user", "content": text}])[:LONGEST_LASTING] for text in _SAID]
    return [common_ids(vocabulary), *openings]


def untrained_probe(
    model: nn.Module, chat: "ChatFormat", vocabulary: int, config: PolicyConfig, checkpoint: Path
) -> DeliveryProbe:
    """Return the record of a `checkpoint` that computes as the base model does: `model` is either of the two."""
    sequences = lasting_sequences(chat, vocabulary)
    read = sequence_logprobs(model, sequences)
    lasting = tuple(probe_sequence(ids, logprobs, base=logprobs) for ids, logprobs in zip(sequences, read, strict=True))
    return DeliveryProbe(
        weights=policy_digest(checkpoint), dtype=config.dtype, device=device(config).type, lasting=lasting
    )
