"""Proof that a server samples from the policy it was given: the statistics.

Adapters that never reach the engine are a known way to lose weeks. So after every weight sync the server reads the
probe of the policy's record (records/delivery_probe.py), and its log-probs are compared with the learner's.

Which policy (`compare`). Of the probe's tokens t the learner wrote down r_t, the log-prob by the delivered policy, and
o_t, by another that the server may be sampling from: the one before the update, the base model, one that the server
still holds. The server's is a_t. With d = r - o and y = a - (r + o) / 2,

    position = 1/2 + sum d y / sum d^2

is the least-squares place of the server on the way from the other policy (0) to the delivered one (1). All three
readings carry rounding noise, much of it as large as d in bfloat16. It draws both ends towards 1/2 alike (errors in
variables: with noise of variance v in each reading and a true distance D they are 1/2 +- D^2 / (2 D^2 + 4 v) apart),
so 1/2 is the boundary whatever the noise, and the noise needs no table: it is estimated from the residuals, by the
paired differences of this very probe. The standard error is HC3 (MacKinnon and White, 1985), which lets the noise
differ between tokens (rare ones have more) and allows for tokens that weigh much; times DEPENDENCE, because tokens
share their past and the weights, and so some of their noise. The distance from the boundary in standard errors is held
against Student's t with n_eff - 1 degrees of freedom, n_eff = (sum d^2)^2 / sum d^4 being the number of tokens that
carry the comparison.

Errors. A server that has the delivered policy is refused, and one that has the other passes as proven, with a
probability of at most ERROR = 1e-4 each, per comparison, where the two policies are one and d is noise alone; far more
rarely where they differ. What lies between is `cannot tell`, and is said. A position over 3/2 (an adapter applied
twice, a later policy) is refused by the same rule.

Which model (`check_delivery`). A server may be far from both, in a direction of its own: another base model, another
adapter, a broken kernel. So the mean |a - r| must also be within what correct implementations of this precision differ
by (TOLERANCES). This alone would prove nothing: a small update lies within it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from tasks.core.engines.vllm_server.errors import WrongPolicy

ERROR = 1e-4
"""Probability of either wrong word of one comparison."""
DEPENDENCE = 2.0
"""Standard errors as if tokens were independent, times this. On the embedded policy in bfloat16, of policies that are
one, the distance from 1/2 spread over 1.25 of those where activations were rounded otherwise, and over 1.93 where the
weights were (test_weight_sync_check.py)."""
TOLERANCES = {"float32": 1e-3, "bfloat16": 0.1}
"""Mean |difference| in nats of the log-probs of correct implementations, by dtype, with room to spare: vLLM's CPU build
differs from the learner by 2e-6 and by 0.02 to 0.03 on the embedded policy."""

Verdict = Literal["delivered", "cannot tell", "not delivered"]
Reading = Sequence[float | None]
"""Log-probs in nats of the probe's tokens; None where a policy's is not known."""


@dataclass(frozen=True)
class Comparison:
    """The place of a server between another policy (0) and the delivered one (1)."""

    other: str
    position: float
    error: float
    """Standard error of `position`; infinite where the two policies don't differ at all."""
    limit: float
    """Standard errors from a boundary that decide."""
    apart: float
    """Mean |difference| in nats of the two policies on the tokens compared."""

    @property
    def verdict(self) -> Verdict:
        margin = self.limit * self.error
        if self.position - 0.5 > margin and not self.position - 1.5 > margin:
            return "delivered"
        return "not delivered" if abs(self.position - 1) - 0.5 > margin else "cannot tell"

    def figures(self) -> dict[str, Any]:
        """The figures that timings.json holds."""
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
    """From the first question to the verdict, the upload left out."""

    @property
    def undecided(self) -> list[Comparison]:
        """Comparisons that could not tell."""
        return [one for one in self.comparisons if one.verdict == "cannot tell"]

    def figures(self) -> dict[str, Any]:
        """The figures that timings.json holds."""
        return {
            "server": self.server,
            "policy": self.policy,
            "distance": round(self.distance, 7),
            "seconds": round(self.seconds, 3),
            "comparisons": [one.figures() for one in self.comparisons],
        }


def mean_difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Mean |difference| of two equally long lists of log-probs."""
    return fmean(abs(a - b) for a, b in zip(one, other, strict=True))


def compare(answer: Sequence[float], expected: Sequence[float], other: Reading, name: str) -> Comparison:
    """The place of `answer` between `other`, called `name`, and `expected`; tokens that `other` lacks are left out."""
    known = [place for place, value in enumerate(other) if value is not None]
    a, r = (np.array([values[place] for place in known], dtype=np.float64) for values in (answer, expected))
    o = np.array([other[place] for place in known], dtype=np.float64)
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
    """The proof in the server's `answer` about the policy whose record is `expected`, held against each of `others`.

    Raises WrongPolicy when it is not the expected policy's.
    """
    distance, tolerance = mean_difference(answer, expected), TOLERANCES[dtype]
    comparisons = tuple(compare(answer, expected, other, name) for name, other in others.items())
    for one in comparisons:
        if one.verdict == "not delivered":
            raise WrongPolicy(
                f"{server}: the policy was not delivered: on the way from {one.other} (0) to {policy} (1) the server's "
                f"log-probs are at {one.position:.3f} (standard error {one.error:.2g}); the two are {one.apart:.2g} "
                "apart on average"
            )
    if distance > tolerance:
        raise WrongPolicy(
            f"{server}: the server samples from another model: its log-probs differ from those of {policy} by "
            f"{distance:.2g} on average (at most {tolerance:.2g} is rounding in {dtype})"
        )
    return Delivery(server, policy, distance, comparisons)
