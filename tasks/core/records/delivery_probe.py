"""delivery_probe.json beside a policy's weights: log-probs by which an engine is proven to sample from that policy.

The learner writes it with the checkpoint, in its own precision and on its own device, so that nobody has to load the
model a second time. It holds what two neighbours of the policy say of the same tokens, too: a proof is a comparison.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.core.records.documents import Digest, Document
from tasks.core.records.invariants import ROUNDING

TokenId = Annotated[int, Field(ge=0)]
Logprob = Annotated[float, Field(le=ROUNDING)]
Logprobs = tuple[Logprob, ...]


class ProbeSequence(Document):
    """Token ids, and log-probs at temperature 1, in nats, of the second and later ones given those before."""

    token_ids: tuple[TokenId, ...] = Field(min_length=2)
    logprobs: Logprobs
    """Log-probs of the policy beside which the record lies."""
    base: Logprobs | None = None
    """Log-probs of the base model; None where the writer had none at hand."""
    previous: Logprobs | None = None
    """Log-probs of the policy that the update began with; None where there was no update."""

    @model_validator(mode="after")
    def _one_logprob_per_predicted_token(self) -> "ProbeSequence":
        for name in ("logprobs", "base", "previous"):
            found = getattr(self, name)
            if found is not None and len(found) != len(self.token_ids) - 1:
                raise ValueError(
                    f"{name}: {len(found)} values for {len(self.token_ids)} token_ids, of which the first has none"
                )
        return self


class DeliveryProbe(Document):
    """The record of one policy."""

    weights: Digest | None
    """SHA-256 of the weights file beside it; None: the record of the base model itself."""
    dtype: Literal["float32", "bfloat16"]
    device: str
    """Kind of device on which the log-probs were computed: "cpu", "cuda"."""
    lasting: tuple[ProbeSequence, ...] = Field(min_length=1)
    """The same tokens in every record of a run, so that any two of its policies can be told apart."""
    trained_on: tuple[ProbeSequence, ...] = ()
    """Tokens of the batch that the policy was last updated on, where it differs most from the one before."""

    @property
    def sequences(self) -> tuple[ProbeSequence, ...]:
        return self.lasting + self.trained_on
