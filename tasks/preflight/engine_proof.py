"""Proof that the engine in this process samples from the model's own function, before the first rollout.

Conversations of different lengths, on both sides of each window that the config names, are sampled in two turns each;
every log-prob is compared with that of the model's own forward pass over the whole conversation, in float64 throughout
where float32 leaves open whether the two differ.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig

from tasks.core.config.engine import EngineSection
from tasks.core.config.policy import PolicyConfig
from tasks.core.interfaces.engine import Engine, GenerationRequest, SamplingSettings
from tasks.core.interfaces.engine_kind import EngineNeeds, open_engine
from tasks.core.learner.model import language_model
from tasks.core.learner.packing import whole_rollout
from tasks.core.learner.proofs import AnotherFunction, difference, own_logprobs, own_rounding, probe_sequences
from tasks.core.policies.checkpoint_files import FULL_CONFIG, holds_adapter
from tasks.core.policies.head import use_float32_logits
from tasks.core.policies.layers import use_own_attention
from tasks.core.policies.loading import load_base_model, trainable_policy
from tasks.core.records.files import read_json


class Float64Pass(TorchFunctionMode):
    """Where it is entered, torch's functions take float64 for float32 as a dtype."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call `func` with float64 for each float32 among its arguments."""
        func = Tensor.double if func is Tensor.float else func
        return func(*map(_wide, args), **{name: _wide(value) for name, value in (kwargs or {}).items()})


def widen(policy: nn.Module) -> None:
    """Give `policy` float64 weights, and its experts a product that takes them."""
    policy.double()
    model = language_model(policy)
    if model._can_set_experts_implementation():  # grouped products know no float64
        model.set_experts_implementation("eager")


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


_TURN, _OBSERVATION = 5, 4
"""Tokens of a turn, and of the observation after the first turn."""


class _Played(NamedTuple):
    """A conversation with an engine."""

    ids: list[int]
    logprobs: dict[int, float]
    """A log-prob for each sampled position."""


def prove_engine(base: Path, config: PolicyConfig, checkpoint: Path, section: EngineSection | None = None) -> None:
    """Raise AnotherFunction if the engine's log-probs are not those of the model's own forward pass.

    `checkpoint`: the policy that both load; its adapter should not be zero. `section`: an engine in this process; None:
    the default. The error names the architecture and the part that differs. Raises ValueError for a model that the
    engine refuses.
    """
    section = section or EngineSection.of()
    size = _difference(section, base, config, checkpoint)
    if size is None:
        return
    name = read_json(base / FULL_CONFIG).get("architectures", ["?"])[0]
    if holds_adapter(checkpoint) and _difference(section, base, config, None) is None:
        part = "what the adapter does (policy.lora.targets)"
    else:
        part = "attention or positions (policy.source, or another engine.name)"
    raise AnotherFunction(
        f"{name}: the log-probs of the engine in this process differ by {size:.2g} nats from those of the model's own "
        f"forward pass; the cause: {part}"
    )


def _difference(section: EngineSection, base: Path, config: PolicyConfig, checkpoint: Path | None) -> float | None:
    """Return by how many nats the engine's log-probs differ from the model's own; None if rounding explains it."""
    prompts = probe_sequences(AutoConfig.from_pretrained(base, local_files_only=True))
    engine = open_engine(section, EngineNeeds(config, base))
    if checkpoint is not None:
        engine.load_adapter(checkpoint)
    room = engine.context_length - 2 * _TURN - _OBSERVATION
    played = _play(engine, [ids[: max(1, room)] for ids in prompts])
    engine.close()
    del engine
    policy: nn.Module = load_base_model(base, config)
    if checkpoint is not None:
        policy = trainable_policy(policy, config, checkpoint, seed=0)
    use_own_attention(language_model(policy))
    use_float32_logits(policy)
    sampled = [torch.tensor(list(conversation.logprobs.values())) for conversation in played]
    dtype = next(policy.parameters()).dtype

    def own() -> list[Tensor]:
        return [_own(policy, conversation) for conversation in played]

    expected = own()
    size = difference(sampled, expected, dtype, own_rounding(policy, own, expected))
    if size is None or dtype != torch.float32:
        return size
    # Its own pass may be the one that rounds: Qwen3-Next's, which solves its delta rule in chunks, is 2.5e-4 nats off.
    widen(policy)
    with Float64Pass():
        return difference(sampled, own(), dtype)


def _play(engine: Engine, prompts: Sequence[Sequence[int]]) -> list[_Played]:
    """Play two turns of every conversation, all of them side by side."""
    played = [_Played(list(prompt), {}) for prompt in prompts]
    turns = dict.fromkeys(map(str, range(len(played))), 0)
    for name, conversation in zip(turns, played, strict=True):
        engine.submit(_request(name, conversation.ids, 0))
    while done := engine.collect():
        for turn in done:
            conversation, name = played[int(turn.sequence_id)], turn.sequence_id
            conversation.logprobs.update(
                zip(range(len(conversation.ids), len(conversation.ids) + _TURN), turn.logprobs, strict=False)
            )
            conversation.ids.extend(turn.token_ids)
            turns[name] += 1
            if turns[name] < 2:
                conversation.ids.extend(conversation.ids[:_OBSERVATION])
                engine.submit(_request(name, conversation.ids, turns[name]))
    return played


def _request(name: str, ids: Sequence[int], turn: int) -> GenerationRequest:
    return GenerationRequest(name, list(ids), SamplingSettings(1.0, _TURN, ()), seed=2 * int(name) + turn)


@torch.no_grad()
def _own(policy: nn.Module, conversation: _Played) -> Tensor:
    """Return the log-probs of the sampled ids [P] by the policy's own forward pass over the conversation."""
    positions = np.array(list(conversation.logprobs), dtype=np.int64)
    return own_logprobs(policy, whole_rollout(conversation.ids))[torch.from_numpy(positions - 1)]
