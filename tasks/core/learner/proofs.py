"""The differences that rounding alone explains, the proof that the learner's passes are exact, and the record that
proves an engine's weights.

Noise: differences between an engine's log-probs and the learner's by the policy's dtype, measured with an engine and
the learner on the same tokens and weights.

Passes: probe sequences of different lengths, on both sides of each window that the config names, go through the
model's own forward pass with the eager attention of its own file, and through the learner's, packed and one to a pass.

Record: log-probs from the learner's own model, dtype, device and kernels, at temperature 1, of the policy before the
update, after it, and with the adapter switched off. It lies in the checkpoint.
"""

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tasks.core.config.update import UpdateConfig
from tasks.core.learner.distributed import SINGLE, ProcessGroup
from tasks.core.learner.logprobs import map_packs, token_logprobs
from tasks.core.learner.model import WAYS, language_model, pack_capacity, suggested, use_passes
from tasks.core.learner.packing import Pack, Rollout, pack_rollouts, whole_rollout
from tasks.core.policies.delivery_probe import COMMON_IDS, common_ids, probe_sequence, read_probe
from tasks.core.policies.head import body_of, logits_of
from tasks.core.policies.layers import use_own_attention
from tasks.core.policies.positions import probe_lengths
from tasks.core.records.delivery_probe import DeliveryProbe
from tasks.core.records.training import Passes

_log = logging.getLogger(__name__)


class EngineNoise(NamedTuple):
    """Bounds of what rounding explains; a larger difference has another cause."""

    token: float
    """|engine - learner| of a single token, in nats."""
    mean: float
    """Mean over the tokens of an update."""


ENGINE_NOISE = {torch.float32: EngineNoise(1e-2, 1e-3), torch.bfloat16: EngineNoise(0.5, 0.1)}
"""bfloat16: one and a half times the largest difference measured for a token (0.35), three times the mean (0.03 to
0.04). float32, where 3e-5 and 5e-6 were measured: the differences that begin to matter for a clip range of 0.1.
"""


EXACT = 1e-4
"""Largest difference of a token's log-prob, in nats, between two float32 computations of one function."""


def difference(
    actual: Sequence[Tensor], expected: Sequence[Tensor], dtype: torch.dtype, rounding: float = 0.0
) -> float | None:
    """Return by how many nats log-probs of a policy in `dtype` differ; None if rounding explains the difference.

    In float32 the largest difference of a token counts; in bfloat16 the mean, since a mixture of experts may round a
    token to another expert. There `rounding` is what a single rounding does (`own_rounding`). Two that are -inf, for a
    token that the head masks, are equal; NaN differs from all.
    """
    apart = _apart(actual, expected)
    mean, largest = float(apart.mean()), float(apart.max())
    if dtype != torch.float32:
        return None if mean <= max(ENGINE_NOISE[dtype].mean, 2 * rounding) else mean
    return None if largest <= EXACT else largest


def own_rounding(policy: nn.Module, passes: Callable[[], list[Tensor]], expected: Sequence[Tensor]) -> float:
    """Return by how many nats on average a single other rounding of its embeddings moves the log-probs of `passes`.

    What that does, rounding does: a random mixture of experts in bfloat16 moves by 0.2 nats. 0 in float32, whose
    rounding needs no measure, and where NaN leaves it open.
    """
    if next(policy.parameters()).dtype == torch.float32:
        return 0.0
    hook = language_model(policy).get_input_embeddings().register_forward_hook(_round_otherwise)
    try:
        moved = float(_apart(passes(), expected).mean())
    finally:
        hook.remove()
    return moved if math.isfinite(moved) else 0.0


def _round_otherwise(_module: nn.Module, _arguments: Any, states: Tensor) -> Tensor:
    signs = 1 - 2 * (torch.arange(states.numel(), device=states.device).view(states.shape) % 2)
    return (states.float() * (1 + torch.finfo(states.dtype).eps * signs)).to(states.dtype)


def _apart(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> Tensor:
    found, wanted = (torch.cat(list(part)).double().cpu() for part in (actual, expected))
    return torch.where(found == wanted, 0.0, (found - wanted).abs())


def engine_noise(policy: nn.Module) -> EngineNoise:
    """Return the noise of the dtype in which `policy` computes; its adapter's dtype may differ."""
    return ENGINE_NOISE[next(policy.parameters()).dtype]


_DIFFERS: dict[Passes, str] = {"packed": "packing", "single": "attention", "single_eager": "head"}
"""The part that differs where a way is not exact and the next way is."""


class AnotherFunction(ValueError):  # noqa: N818 - named after the finding
    """A learner or engine that computes another function than the model's own forward pass."""


@torch.no_grad()
def prove_passes(policy: nn.Module, config: UpdateConfig, fastest: Passes | None = None) -> Passes:
    """Return the fastest way in which the learner's passes are exact, and make `policy` use it.

    `fastest`: the first way to try; None: the fastest that the layers of `policy` allow. The policy's adapter should
    not be zero. Each rank proves it by itself (collective). Raises AnotherFunction naming the architecture and the part
    that differs.
    """
    model, dtype = language_model(policy), next(policy.parameters()).dtype
    rollouts = [whole_rollout(ids) for ids in probe_sequences(model.config)]
    use_own_attention(model)

    def own() -> list[Tensor]:
        return [own_logprobs(policy, rollout) for rollout in rollouts]

    expected = own()
    rounding = own_rounding(policy, own, expected)
    parts: list[str] = []
    for way in WAYS[WAYS.index(fastest or suggested(policy)) :]:
        use_passes(policy, way)
        try:
            apart = difference(_read(policy, rollouts, config), expected, dtype, rounding)
        except (TypeError, ValueError, AttributeError) as error:
            parts.append(f"{_DIFFERS[way]} ({error})")
            continue
        if apart is None:
            if parts:
                _log.warning("%s uses passes of kind %s: %s", type(model).__name__, way, "; ".join(parts))
            return way
        parts.append(f"{_DIFFERS[way]} (by {apart:.2g} nats)")
    raise AnotherFunction(
        f"{type(model).__name__}: the learner's log-probs differ from those of the model's own forward pass in "
        f"{'; '.join(_in_the_head(policy, rollouts[0]) or parts)}. policy.source: this architecture cannot be trained"
    )


def own_logprobs(policy: nn.Module, rollout: Rollout) -> Tensor:
    """Return the log-probs [P] of a rollout's policy tokens by one call of the policy's own forward pass."""
    ids = torch.from_numpy(rollout.token_ids).to(next(policy.parameters()).device)
    logits: Tensor = policy(input_ids=ids[None], use_cache=False).logits[0]
    positions = torch.from_numpy(rollout.policy_positions).to(ids.device)
    return logits[positions - 1].float().log_softmax(-1).gather(1, ids[positions, None])[:, 0]


def probe_sequences(model_config: Any) -> list[list[int]]:
    """Return sequences of ids that every vocabulary has, of the lengths that the model's config asks for."""
    config = model_config.get_text_config()
    known, generator = min(COMMON_IDS, config.vocab_size), np.random.Generator(np.random.PCG64(0))
    return [generator.integers(0, known, length).tolist() for length in probe_lengths(config.to_dict())]


def _read(policy: nn.Module, rollouts: Sequence[Rollout], config: UpdateConfig) -> list[Tensor]:
    """Return the learner's log-probs [P] of each rollout."""
    device, logprobs_by_row = next(policy.parameters()).device, dict[int, Tensor]()
    together = pack_capacity(policy, sum(rollout.length for rollout in rollouts))
    for pack in pack_rollouts(rollouts, range(len(rollouts)), together, device):
        read = token_logprobs(policy, pack, 1.0, config.logprob_chunk, entropy=False).logprobs
        logprobs_by_row.update(zip(pack.rows, torch.split(read, pack.policy_tokens), strict=True))
    return [logprobs_by_row[row] for row in range(len(rollouts))]


def _in_the_head(policy: nn.Module, rollout: Rollout) -> list[str]:
    """Return a description if the head alone computes other logits from the model's own hidden states, else nothing."""
    model = language_model(policy)
    ids = torch.from_numpy(rollout.token_ids).to(next(policy.parameters()).device)[None]
    own_logits = policy(input_ids=ids, use_cache=False).logits[0].float()
    apart = (logits_of(model, body_of(model)(input_ids=ids, use_cache=False)[0][0]).float() - own_logits).abs().max()
    return [f"head (logits by {float(apart):.2g})"] if apart > 1e-3 * own_logits.abs().max() else []


WINDOWS = 16
WINDOW_TOKENS = 96
CONTEXT_TOKENS = 32
"""Tokens of a window before the turn that it covers."""


class ProbeTokens(NamedTuple):
    """The token ids of the record's two parts: `lasting`, kept from record to record, and windows of the batch."""

    lasting: list[list[int]]
    trained_on: list[list[int]]


Readings = list[list[float]]
"""Log-probs of every id of each sequence except its first."""


def probe_tokens(previous: Path, vocabulary: int, rollouts: Sequence[Rollout]) -> ProbeTokens:
    """Return the tokens to read: the lasting ones of `previous`'s record (or common ids), and windows of the batch."""
    before = read_probe(previous)
    lasting = [list(sequence.token_ids) for sequence in before.lasting] if before else [common_ids(vocabulary)]
    return ProbeTokens(lasting, batch_windows(rollouts))


def batch_windows(rollouts: Sequence[Rollout]) -> list[list[int]]:
    """Return windows of at most WINDOW_TOKENS ids around turns of the rollouts with the largest advantages.

    The update moves the policy most there. A window begins in the middle of a conversation: the policy's log-probs
    there identify it as well, and a server reads a prompt of 96 tokens instead of 30,000.
    """
    sizes = [float(np.abs(rollout.token_advantages).mean()) for rollout in rollouts]
    order = sorted(range(len(rollouts)), key=lambda row: (-sizes[row], row))
    return [_window(rollouts[row]) for row in order[:WINDOWS]]


def _window(rollout: Rollout) -> list[int]:
    """Return the rollout's longest turn, cut to the window's size, with some tokens before it."""
    turns, counts = np.unique(rollout.turns, return_counts=True)
    first = int(rollout.policy_positions[rollout.turns == turns[counts.argmax()]][0])
    begin = max(0, first - CONTEXT_TOKENS)
    ids: list[int] = rollout.token_ids[begin : begin + WINDOW_TOKENS].tolist()
    return ids


def read_tokens(policy: nn.Module, tokens: ProbeTokens, config: UpdateConfig, group: ProcessGroup = SINGLE) -> Readings:
    """Return the learner's log-probs of all sequences, lasting sequences first.

    Each rank computes all of them (collective).
    """
    sequences = [*tokens.lasting, *tokens.trained_on]
    device, readings = next(policy.parameters()).device, dict[int, list[float]]()
    rollouts = [whole_rollout(ids) for ids in sequences]

    @torch.no_grad()
    def read(pack: Pack) -> Tensor:
        return token_logprobs(policy, pack, 1.0, config.logprob_chunk, entropy=False).logprobs.cpu()

    packs = pack_rollouts(rollouts, range(len(rollouts)), pack_capacity(policy, config.tokens_per_pack), device)
    for pack, logprobs in zip(packs, map_packs(read, policy, packs, group), strict=True):
        parts = torch.split(logprobs, pack.policy_tokens)
        readings.update((row, part.tolist()) for row, part in zip(pack.rows, parts, strict=True))
    return [readings[row] for row in range(len(sequences))]


def learner_record(
    tokens: ProbeTokens, now: Readings, base: Readings | None, previous: Readings, dtype: str, device: str
) -> DeliveryProbe:
    """Return the record, not yet with a digest of weights, of a policy in `dtype` on this kind of `device`."""
    of_base: Sequence[list[float] | None] = base or [None] * len(now)
    columns = zip([*tokens.lasting, *tokens.trained_on], now, of_base, previous, strict=True)
    sequences = tuple(probe_sequence(*column) for column in columns)
    lasting = len(tokens.lasting)
    content = {"weights": None, "dtype": dtype, "device": device}
    return DeliveryProbe.model_validate({**content, "lasting": sequences[:lasting], "trained_on": sequences[lasting:]})
