"""Proof that a server samples from the policy it was given: the requests, and the policies to compare with."""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tasks.core.engines.vllm.client import ServerClient, WrongPolicy
from tasks.core.engines.vllm.weight_sync_check import Delivery, Reading, check_delivery
from tasks.core.policies.delivery_probe import COMMON_IDS
from tasks.core.records.delivery_probe import TOLERANCES, DeliveryProbe, ProbeSequence, mean_difference

BASE, BEFORE = "the base model", "the policy before it"
_SAMPLED = 8
"""Tokens that are sampled and then read: a server must sample from the same distribution that it reads by."""
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
    """Ask the server for log-probs of the policy's record under the name `model`, and judge them.

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
    delivery = check_delivery(answer, expected, others, probe.dtype, client.url, name)
    delivery = replace(delivery, seconds=time.perf_counter() - started)
    _log_delivery(delivery)
    return delivery


async def require_base(client: ServerClient, model: str, root: str, probe: DeliveryProbe) -> None:
    """Check an external server's base model.

    Sends only ids that every model has. Raises WrongPolicy if it is not ours.
    """
    sequences = [
        sequence for sequence in probe.sequences if sequence.base is not None and max(sequence.token_ids) < COMMON_IDS
    ]
    if sequences:
        answer = await _readings(client, model, sequences)
        expected = [value for sequence in sequences for value in sequence.base or ()]
        check_delivery(answer, expected, {}, probe.dtype, f"{client.url} (serving {root})", BASE)


async def _readings(client: ServerClient, model: str, sequences: Sequence[ProbeSequence]) -> list[float]:
    """Return the server's log-probs of all sequences, concatenated; the first id of each has none."""
    readings = await asyncio.gather(*(_reading(client, model, reading.token_ids) for reading in sequences))
    return [value for reading in readings for value in reading]


async def _reading(client: ServerClient, model: str, ids: Sequence[int]) -> list[float]:
    sampled = await client.sample(
        model, ids, temperature=1.0, max_tokens=1, stop_ids=(), seed=_SEED, prompt_logprobs=True
    )
    return sampled.prompt_logprobs


async def _require_one_distribution(
    client: ServerClient, model: str, sequence: ProbeSequence, probe: DeliveryProbe, room: int
) -> None:
    """Sample some tokens and have the server read them. Raises WrongPolicy if decoding and reading differ."""
    count = min(_SAMPLED, room // 2)
    prompt = list(sequence.token_ids[: room - count - 1])
    sampled = await client.sample(model, prompt, temperature=1.0, max_tokens=count, stop_ids=(), seed=_SEED)
    read = (await _reading(client, model, prompt + sampled.ids))[len(prompt) - 1 :]
    distance, tolerance = mean_difference(sampled.logprobs, read), 4 * TOLERANCES[probe.dtype]
    if distance > tolerance:
        raise WrongPolicy(
            f"{client.url}: the server does not sample from the distribution that it scores with: the log-probs of "
            f"tokens when sampled and when scored as a prompt differ by {distance:.2g} on average (rounding in "
            f"{probe.dtype} explains at most {tolerance:.2g})"
        )


def _cut(sequence: ProbeSequence, room: int) -> ProbeSequence:
    """Return the sequence, cut so that the server has room for it and one more token."""
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
    """Yield readings of the same tokens by other policies that the server may be sampling from, by name."""
    columns: dict[str, list[Sequence[float] | None]] = {
        BASE: [None if of_base else sequence.base for sequence in sequences],
        BEFORE: [sequence.previous for sequence in sequences],
    }
    for name, probe in held.items():
        known = {sequence.token_ids: sequence.logprobs for sequence in probe.sequences}
        columns[name] = [_known(known, sequence) for sequence in sequences]
    for name, column in columns.items():
        if any(values is not None for values in column):
            yield (
                name,
                [
                    value
                    for values, sequence in zip(column, sequences, strict=True)
                    for value in _filled(values, sequence)
                ],
            )


def _known(known: Mapping[tuple[int, ...], tuple[float, ...]], sequence: ProbeSequence) -> Sequence[float] | None:
    """Return another policy's reading of a sequence, which may have been cut."""
    count = len(sequence.token_ids)
    for ids, logprobs in known.items():
        if ids[:count] == sequence.token_ids:
            return logprobs[: count - 1]
    return None


def _filled(values: Sequence[float] | None, sequence: ProbeSequence) -> Reading:
    return [None] * len(sequence.logprobs) if values is None else values


def _log_delivery(delivery: Delivery) -> None:
    for comparison in delivery.undecided:
        if comparison.apart:
            _log.warning(
                "%s: cannot distinguish %s from %s: on the probe's tokens they differ by %.2g on average, which is "
                "within the noise (on a scale from the second policy, 0, to the first, 1, the server is at %.2f, "
                "standard error %.2g)",
                delivery.server,
                delivery.policy,
                comparison.other,
                comparison.apart,
                comparison.position,
                comparison.error,
            )
        else:
            _log.info("%s: %s and %s compute the same log-probs", delivery.server, delivery.policy, comparison.other)
    _log.info("%s: delivered: %s", delivery.server, delivery.figures())
