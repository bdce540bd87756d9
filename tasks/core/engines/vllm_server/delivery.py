"""Proof that a server samples from the policy it was given: what it is asked, and whom it is held against."""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tasks.core.engines.vllm_server.client import ServerClient
from tasks.core.engines.vllm_server.errors import WrongPolicy
from tasks.core.engines.vllm_server.weight_sync_check import (
    TOLERANCES,
    Delivery,
    Reading,
    check_delivery,
    mean_difference,
)
from tasks.core.policies.delivery_probe import COMMON_IDS
from tasks.core.records.delivery_probe import DeliveryProbe, ProbeSequence

BASE, BEFORE = "the base model", "the policy before it"
_SAMPLED = 8
"""Tokens that are sampled and then read: what a server samples from must be what it reads by."""
_SEED = 20250201
_log = logging.getLogger(__name__)


async def prove_delivery(
    client: ServerClient,
    model: str,
    policy: Path | None,
    probe: DeliveryProbe,
    held: Mapping[str, DeliveryProbe],
    room: int,
) -> Delivery:
    """Ask the server, by its name `model`, for the log-probs of the policy's record, and judge them.

    `held`: records of policies that the server may still be sampling from, by name; `room`: its longest sequence.
    Raises WrongPolicy.
    """
    started, name = time.perf_counter(), str(policy or BASE)
    sequences = [_cut(sequence, room) for sequence in probe.sequences]
    answer, _ = await asyncio.gather(
        _readings(client, model, sequences), _require_one_distribution(client, model, sequences[-1], probe, room)
    )
    expected = [value for sequence in sequences for value in sequence.logprobs]
    others = dict(_others(sequences, held, of_base=policy is None))
    found = check_delivery(answer, expected, others, probe.dtype, client.url, name)
    found = replace(found, seconds=time.perf_counter() - started)
    _tell(found)
    return found


async def require_base(client: ServerClient, model: str, root: str, probe: DeliveryProbe) -> None:
    """Raises WrongPolicy for a found server whose base model is not ours. Asks it for ids that every model has only."""
    sequences = [one for one in probe.sequences if one.base is not None and max(one.token_ids) < COMMON_IDS]
    if sequences:
        answer = await _readings(client, model, sequences)
        expected = [value for one in sequences for value in one.base or ()]
        check_delivery(answer, expected, {}, probe.dtype, f"{client.url} (serving {root})", BASE)


async def _readings(client: ServerClient, model: str, sequences: Sequence[ProbeSequence]) -> list[float]:
    """The server's log-probs of all sequences, one after the other; the first id of each has none."""
    found = await asyncio.gather(*(_reading(client, model, one.token_ids) for one in sequences))
    return [value for one in found for value in one]


async def _reading(client: ServerClient, model: str, ids: Sequence[int]) -> list[float]:
    sampled = await client.sample(
        model, ids, temperature=1.0, max_tokens=1, stop_ids=(), seed=_SEED, prompt_logprobs=True
    )
    return sampled.prompt_logprobs


async def _require_one_distribution(
    client: ServerClient, model: str, sequence: ProbeSequence, probe: DeliveryProbe, room: int
) -> None:
    """Sample some tokens, then have them read. Raises WrongPolicy if decoding computes otherwise than reading."""
    count = min(_SAMPLED, room // 2)
    prompt = list(sequence.token_ids[: room - count - 1])
    sampled = await client.sample(model, prompt, temperature=1.0, max_tokens=count, stop_ids=(), seed=_SEED)
    read = (await _reading(client, model, prompt + sampled.ids))[len(prompt) - 1 :]
    distance, tolerance = mean_difference(sampled.logprobs, read), 4 * TOLERANCES[probe.dtype]
    if distance > tolerance:
        raise WrongPolicy(
            f"{client.url}: the server samples from another distribution than it reads by: the log-probs of tokens "
            f"that it sampled and then read differ by {distance:.2g} on average (at most {tolerance:.2g} is rounding "
            f"in {probe.dtype})"
        )


def _cut(sequence: ProbeSequence, room: int) -> ProbeSequence:
    """The sequence as far as the server has room for it and a token more."""
    ids = sequence.token_ids[: max(2, room - 1)]

    def cut(values: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return None if values is None else values[: len(ids) - 1]

    return ProbeSequence(
        token_ids=ids,
        logprobs=sequence.logprobs[: len(ids) - 1],
        base=cut(sequence.base),
        previous=cut(sequence.previous),
    )


def _others(
    sequences: Sequence[ProbeSequence], held: Mapping[str, DeliveryProbe], *, of_base: bool
) -> Iterator[tuple[str, Reading]]:
    """Readings of the same tokens by the policies that the server may be sampling from instead, by name."""
    columns: dict[str, list[Sequence[float] | None]] = {
        BASE: [None if of_base else one.base for one in sequences],
        BEFORE: [one.previous for one in sequences],
    }
    for name, probe in held.items():
        known = {one.token_ids: one.logprobs for one in probe.sequences}
        columns[name] = [_known(known, one) for one in sequences]
    for name, column in columns.items():
        if any(values is not None for values in column):
            yield name, [value for values, one in zip(column, sequences, strict=True) for value in _filled(values, one)]


def _known(known: Mapping[tuple[int, ...], tuple[float, ...]], sequence: ProbeSequence) -> Sequence[float] | None:
    """Another policy's reading of a sequence, which may have been cut."""
    count = len(sequence.token_ids)
    for ids, logprobs in known.items():
        if ids[:count] == sequence.token_ids:
            return logprobs[: count - 1]
    return None


def _filled(values: Sequence[float] | None, sequence: ProbeSequence) -> Reading:
    return [None] * len(sequence.logprobs) if values is None else values


def _tell(found: Delivery) -> None:
    for one in found.undecided:
        if one.apart:
            _log.warning(
                "%s: cannot tell %s from %s: they are %.2g apart on average on the probe's tokens, which is within the "
                "noise (on the way from the one, at 1, to the other, at 0, the server is at %.2f, standard error %.2g)",
                found.server,
                found.policy,
                one.other,
                one.apart,
                one.position,
                one.error,
            )
        else:
            _log.info("%s: %s computes just as %s does", found.server, found.policy, one.other)
    _log.info("%s: delivered: %s", found.server, found.figures())
