"""Policies a step apart with the records of their log-probs beside them, for tests of deliveries."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm.probe_records import LocalModel
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.delivery_probe import lasting_sequences, probe_sequence, write_probe
from tasks.core.records.delivery_probe import DeliveryProbe

SHIPPED = Path(__file__).parents[4] / "data" / "base_policies" / "pocket"
VOCABULARY = 871


def moved(source: Path, folder: Path, size: float, seed: int) -> Path:
    """The adapter of `source` after a step: noise of this standard deviation on every B."""
    folder.mkdir()
    random = torch.Generator().manual_seed(seed)
    tensors = load_file(source / "adapter_model.safetensors")
    for name in sorted(tensors):
        if "lora_B" in name:
            tensors[name] += size * torch.randn(tensors[name].shape, generator=random)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_bytes((source / "adapter_config.json").read_bytes())
    return folder


def recorded(
    folder: Path, previous: Path | None, chat: ChatFormat, config: PolicyConfig, of: Path | None = None
) -> Path:
    """Put the record of `folder` (or of another policy, `of`, under its name) beside it."""
    lasting = lasting_sequences(chat, VOCABULARY)
    texts = [f"Send {place} coins to friend {place * 3}, then tell me the weather." * 3 for place in range(16)]
    windows = [chat.prompt_ids([{"role": "user", "content": text}])[:96] for text in texts]
    readings = LocalModel(SHIPPED, config).readings([of or folder, previous, None], [*lasting, *windows])
    columns = zip([*lasting, *windows], readings[0], readings[2], readings[1], strict=True)
    sequences = tuple(probe_sequence(*column) for column in columns)
    count = len(lasting)
    probe = DeliveryProbe(
        weights=policy_digest(folder),
        dtype=config.dtype,
        device="cpu",
        lasting=sequences[:count],
        trained_on=sequences[count:],
    )
    write_probe(folder, probe)
    return folder
