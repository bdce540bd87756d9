"""delivery_probe.json, next to a policy's weights: log-probs that prove which policy an engine samples from.

The learner writes it with the checkpoint, in its own precision and on its own device, so that nobody has to load the
model a second time. A proof is a comparison, so it also holds the log-probs of two neighbouring policies for the same
tokens.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.core.records.documents import Digest, Document
from tasks.core.records.invariants import ROUNDING

TokenId = Annotated[int, Field(ge=0)]
Logprob = Annotated[float, Field(le=ROUNDING)]
Logprobs = tuple[Logprob, ...]
TOLERANCES = {"float32": 1e-3, "bfloat16": 0.1}
"""Mean |difference| in nats between the log-probs of correct implementations, by dtype, with room to spare: vLLM's CPU
build differs from the learner by 2e-6 and by 0.02 to 0.03 on the embedded policy."""


class ProbeSequence(Document):
    """Token ids, and the log-probs of each but the first given those before it: at temperature 1, in nats."""

    token_ids: tuple[TokenId, ...] = Field(min_length=2)
    logprobs: Logprobs
    """Log-probs of the policy next to which the record lies."""
    base: Logprobs | None = None
    """Log-probs of the base model; None if the writer did not have them."""
    previous: Logprobs | None = None
    """Log-probs of the policy before the update; None if there was no update."""

    @model_validator(mode="after")
    def _one_logprob_per_predicted_token(self) -> "ProbeSequence":
        for name in ("logprobs", "base", "previous"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.token_ids) - 1:
                raise ValueError(
                    f"{name}: {len(values)} values for {len(self.token_ids)} token_ids, of which the first has none"
                )
        return self


class DeliveryProbe(Document):
    """The delivery probe of one policy."""

    weights: Digest | None
    """SHA-256 of the weights file next to it; None for the base model itself."""
    dtype: Literal["float32", "bfloat16"]
    device: str
    """Type of the device that computed the log-probs: "cpu", "cuda"."""
    lasting: tuple[ProbeSequence, ...] = Field(min_length=1)
    """The same tokens in every record of a run, so that any two of its policies can be distinguished."""
    trained_on: tuple[ProbeSequence, ...] = ()
    """Tokens of the batch of the policy's last update, where it differs most from its predecessor."""

    @property
    def sequences(self) -> tuple[ProbeSequence, ...]:
        return self.lasting + self.trained_on


def mean_difference(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the mean |difference| between two equally long lists of log-probs; inf, which no limit allows, for NaN."""
    mean = fmean(abs(a - b) for a, b in zip(first, second, strict=True))
    return math.inf if math.isnan(mean) else mean
