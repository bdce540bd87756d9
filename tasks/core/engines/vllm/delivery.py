"""Proof that a server samples from the policy it was given: the requests, and the policies to compare with."""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tasks.core.engines.vllm.client import ServerClient
from tasks.core.engines.vllm.weight_sync_check import Delivery, Reading, check_delivery
from tasks.core.policies.delivery_probe import COMMON_IDS
from tasks.core.records.delivery_probe import DeliveryProbe, ProbeSequence

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
    room: int,
) -> Delivery:
    """Ask the server for log-probs of the policy's record under the name `model`, and judge them.

    `room`: the server's longest sequence. Raises WrongPolicy.
    """
    started, name = time.perf_counter(), str(policy or BASE)
    sequences = [_cut(sequence, room) for sequence in probe.sequences]
    answer = await _readings(client, model, sequences)
    expected = [value for sequence in sequences for value in sequence.logprobs]
    others = dict(_others(sequences, of_base=policy is None))
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


def _others(sequences: Sequence[ProbeSequence], *, of_base: bool) -> Iterator[tuple[str, Reading]]:
    """Yield readings of the same tokens by the policies that the server may still be sampling from, by name."""
    bases = [None if of_base else sequence.base for sequence in sequences]
    for name, column in ((BASE, bases), (BEFORE, [sequence.previous for sequence in sequences])):
        if any(values is not None for values in column):
            filled = (
                values or [None] * len(sequence.logprobs) for values, sequence in zip(column, sequences, strict=True)
            )
            yield name, [value for values in filled for value in values]


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
