"""Proof that a server samples from the policy it was given: the statistics.

Adapters that never reach the engine are a known way to lose weeks. So after every weight sync the server reads the
probe in the policy's record (records/delivery_probe.py), and its log-probs are compared with the learner's.

Which policy (`compare`). For each token t of the probe the learner recorded r_t, the log-prob under the delivered
policy, and o_t, that under another policy that the server may be sampling from: the policy before the update, the base
model, or an adapter that the server still holds. The server's log-prob is a_t. With d = r - o and y = a - (r + o) / 2,

    position = 1/2 + sum d y / sum d^2

is the least-squares position of the server on the line from the other policy (0) to the delivered policy (1). All three
readings carry rounding noise, often as large as d in bfloat16. The noise draws both ends towards 1/2 equally (errors in
variables: with noise of variance v in each reading and a true distance D the ends are at 1/2 +- D^2 / (2 D^2 + 4 v)).
So 1/2 is the boundary whatever the noise, and no table of noise levels is needed: the noise is estimated from the
residuals, by the paired differences of this very probe. The standard error is HC3 (MacKinnon and White, 1985), which
lets the noise differ between tokens (rare tokens have more) and allows for tokens with high leverage. It is multiplied
by DEPENDENCE, because tokens share their past and the weights, and so some of their noise. The distance from the
boundary in standard errors is compared with Student's t with n_eff - 1 degrees of freedom, where n_eff = (sum d^2)^2 /
sum d^4 is the number of tokens that carry the comparison.

Errors. Each of the two errors (refusing a server that has the delivered policy, and accepting one that has the other)
has probability at most ERROR = 1e-4 per comparison if the two policies are equal and d is only noise; it is far smaller
if they differ. Anything in between is `cannot tell`, and is reported. A position above 3/2 (an adapter applied twice, a
later policy) is refused by the same rule.

Anything that is no finite number is refused before all this: NaN would pass every comparison as `cannot tell`.

Which model (`check_delivery`). A server may be far from both policies, in another direction: another base model,
another adapter, a broken kernel. So the mean |a - r| must also be within the difference between correct implementations
at this precision (TOLERANCES). That alone would prove nothing: a small update lies within it.
"""

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from tasks.core.engines.vllm.client import ServerClient, WrongPolicy
from tasks.core.policies.delivery_probe import COMMON_IDS
from tasks.core.records.delivery_probe import TOLERANCES, DeliveryProbe, ProbeSequence, mean_difference

ERROR = 1e-4
"""Probability of either error in one comparison."""
DEPENDENCE = 2.0
"""Factor on standard errors that assume independent tokens. On the embedded policy in bfloat16, for equal policies, the
distance from 1/2 had a spread of 1.25 such standard errors with differently rounded activations, and 1.93 with
differently rounded weights (test_statistics.py)."""

Verdict = Literal["delivered", "cannot tell", "not delivered"]
Reading = Sequence[float | None]
"""Log-probs in nats of the probe's tokens; None where a policy's log-prob is unknown."""


@dataclass(frozen=True)
class Comparison:
    """The position of a server between another policy (0) and the delivered policy (1)."""

    other: str
    position: float
    error: float
    """Standard error of `position`; infinite if the two policies do not differ at all."""
    limit: float
    """Distance from a boundary, in standard errors, that decides."""
    apart: float
    """Mean |difference| in nats between the two policies on the compared tokens."""

    @property
    def verdict(self) -> Verdict:
        margin = self.limit * self.error
        if self.position - 0.5 > margin and not self.position - 1.5 > margin:
            return "delivered"
        return "not delivered" if abs(self.position - 1) - 0.5 > margin else "cannot tell"

    def figures(self) -> dict[str, Any]:
        """Return the figures for timings.json."""
        known = np.isfinite(self.error)
        return {
            "other": self.other,
            "verdict": self.verdict,
            "position": round(self.position, 4) if known else None,
            "error": round(self.error, 6) if known else None,
            "apart": round(self.apart, 7),
        }


@dataclass(frozen=True)
class Delivery:
    """A delivery that was not refused."""

    server: str
    policy: str
    distance: float
    """Mean |server - record| in nats."""
    comparisons: tuple[Comparison, ...]
    seconds: float = 0.0
    """From the first request to the verdict, without the upload."""

    @property
    def undecided(self) -> list[Comparison]:
        """Comparisons whose verdict is "cannot tell"."""
        return [comparison for comparison in self.comparisons if comparison.verdict == "cannot tell"]

    def figures(self) -> dict[str, Any]:
        """Return the figures for timings.json."""
        return {
            "server": self.server,
            "policy": self.policy,
            "distance": round(self.distance, 7),
            "seconds": round(self.seconds, 3),
            "comparisons": [comparison.figures() for comparison in self.comparisons],
        }


def compare(answer: Sequence[float], expected: Sequence[float], other: Reading, name: str) -> Comparison:
    """Return the position of `answer` between `other` (called `name`) and `expected`, on the tokens of `other`."""
    known = [index for index, value in enumerate(other) if value is not None]
    a, r = (np.array([values[index] for index in known], dtype=np.float64) for values in (answer, expected))
    o = np.array([other[index] for index in known], dtype=np.float64)
    d, y = r - o, a - (r + o) / 2
    squares = d * d
    total, apart = float(squares.sum()), float(np.abs(d).mean()) if known else 0.0
    effective = total * total / float((squares * squares).sum()) if total else 0.0
    if effective < 2:
        return Comparison(name, 0.5, float("inf"), 0.0, apart)
    slope = float(d @ y) / total
    residuals = (y - slope * d) / (1 - squares / total)
    error = DEPENDENCE * float(np.sqrt(squares @ (residuals * residuals))) / total
    return Comparison(name, 0.5 + slope, error, float(-stdtrit(effective - 1, ERROR)), apart)


def check_delivery(
    answer: Sequence[float],
    expected: Sequence[float],
    others: Mapping[str, Reading],
    dtype: str,
    server: str,
    policy: str,
) -> Delivery:
    """Judge the server's `answer` about the policy whose record is `expected`, compared with each of `others`.

    Raises WrongPolicy if the answer does not come from the expected policy.
    """
    if strange := [value for value in answer if not math.isfinite(value)]:
        raise WrongPolicy(
            f"{server}: {len(strange)} of the {len(answer)} log-probs that it gives for {policy} are not finite "
            f"({strange[0]}): its weights or kernels are broken"
        )
    distance, tolerance = mean_difference(answer, expected), TOLERANCES[dtype]
    comparisons = tuple(compare(answer, expected, other, name) for name, other in others.items())
    for comparison in comparisons:
        if comparison.verdict == "not delivered":
            raise WrongPolicy(
                f"{server}: the policy was not delivered: on a scale from {comparison.other} (0) to {policy} (1) the "
                f"server's log-probs are at {comparison.position:.3f} (standard error {comparison.error:.2g}); those "
                f"of the two policies differ by {comparison.apart:.2g} on average"
            )
    if distance > tolerance:
        raise WrongPolicy(
            f"{server}: the server samples from another model: its log-probs differ from those of {policy} by "
            f"{distance:.2g} on average (rounding in {dtype} explains at most {tolerance:.2g})"
        )
    return Delivery(server, policy, distance, comparisons)


BASE, BEFORE = "the base model", "the policy before it"
_SEED = 20250201
_log = logging.getLogger(__name__)


async def prove_delivery(
    client: ServerClient, model: str, policy: Path | None, probe: DeliveryProbe, room: int
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
    settings: dict[str, Any] = {"temperature": 1.0, "max_tokens": 1, "stop_ids": (), "seed": _SEED}
    asked = (client.sample(model, read.token_ids, prompt_logprobs=True, **settings) for read in sequences)
    return [value for reading in await asyncio.gather(*asked) for value in reading.prompt_logprobs]


def _cut(sequence: ProbeSequence, room: int) -> ProbeSequence:
    """Return the sequence, cut so that the server has room for it and one more token."""
    ids = sequence.token_ids[: max(2, room - 1)]
    columns = {"base": sequence.base, "previous": sequence.previous, "logprobs": sequence.logprobs}
    cut = {name: values[: len(ids) - 1] for name, values in columns.items() if values is not None}
    return sequence.model_copy(update={"token_ids": ids, **cut})


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
