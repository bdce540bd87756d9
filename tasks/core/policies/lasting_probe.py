"""The part of a policy's record that all policies of a run share: what the base model says in the run's chat format."""

from pathlib import Path

from torch import nn

from tasks.core.config.policy import PolicyConfig
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.delivery_probe import LONGEST_LASTING, common_ids, probe_sequence, sequence_logprobs
from tasks.core.policies.loading import device
from tasks.core.records.delivery_probe import DeliveryProbe

_SAID = (
    "Name every letter of the alphabet, then count from one to twenty.",
    "for page in range(10):\n    print(apis.api_docs.show_app_descriptions(app_name='spotify', page_index=page))",
    '{"status": "success", "items": [{"id": 12, "amount": 7.5, "note": "rent"}, {"id": 13, "amount": 40.0}]}',
)


def lasting_sequences(chat: ChatFormat, vocabulary: int) -> list[list[int]]:
    """Return token ids in every record of a run: ids that any model knows, then the openings of some conversations."""
    openings = [chat.prompt_ids([{"role": "user", "content": text}])[:LONGEST_LASTING] for text in _SAID]
    return [common_ids(vocabulary), *openings]


def untrained_probe(
    model: nn.Module, chat: ChatFormat, vocabulary: int, config: PolicyConfig, checkpoint: Path
) -> DeliveryProbe:
    """Return the record of a `checkpoint` that computes as the base model does: `model` is either of the two."""
    sequences = lasting_sequences(chat, vocabulary)
    read = sequence_logprobs(model, sequences)
    lasting = tuple(probe_sequence(ids, logprobs, base=logprobs) for ids, logprobs in zip(sequences, read, strict=True))
    return DeliveryProbe(
        weights=policy_digest(checkpoint), dtype=config.dtype, device=device(config).type, lasting=lasting
    )
