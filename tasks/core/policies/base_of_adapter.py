"""Whether a base model is the one that an adapter was trained on: the log-probs of the adapter's record, computed anew.

An adapter fits every model of the same shape, and on another one it means nothing.
"""

import gc
from pathlib import Path

from torch import nn

from tasks.core.config.policy import PolicyConfig
from tasks.core.policies.checkpoint_files import DELIVERY_PROBE, holds_adapter
from tasks.core.policies.delivery_probe import read_probe, sequence_logprobs
from tasks.core.policies.loading import load_base_model
from tasks.core.policies.policy_weights import PolicyWeights
from tasks.core.records.delivery_probe import TOLERANCES, DeliveryProbe, mean_difference
from tasks.core.records.files import ArtifactError


def require_base_of_adapter(checkpoint: Path, base: Path, config: PolicyConfig, named: str) -> None:
    """Load the model in the folder `base`, called `named`, with the adapter, and compare it with the adapter's record.

    Whole weights and an adapter without a record are let through: there is nothing to compare. Raises ArtifactError for
    another base or a record of other weights, ValueError where the adapter doesn't fit.
    """
    if not holds_adapter(checkpoint) or read_probe(checkpoint) is None:
        return
    model = load_base_model(base, config)
    PolicyWeights(model).load(checkpoint)
    require_recorded(model, checkpoint, config, named)
    del model
    gc.collect()  # a model's parts refer to each other, and two might not fit


def require_recorded(policy: nn.Module, checkpoint: Path, config: PolicyConfig, base: str) -> None:
    """Raise ArtifactError where `policy`, the checkpoint on the model called `base`, has not the record's log-probs."""
    probe = read_probe(checkpoint)
    if probe is None:
        return
    distance = _distance(policy, probe)
    tolerance = max(TOLERANCES[probe.dtype], TOLERANCES[config.dtype])
    if distance > tolerance:
        raise ArtifactError(
            f"{checkpoint}: was trained on another base model than {base}: log-probs differ from those in its "
            f"{DELIVERY_PROBE} by {distance:.2g} on average (rounding explains at most {tolerance:.2g})"
        )


def _distance(policy: nn.Module, probe: DeliveryProbe) -> float:
    """Return the mean |difference| in nats from a record; inf where the model doesn't even know its tokens."""
    embeddings: nn.Embedding = policy.get_input_embeddings()  # type: ignore[operator]
    if max(max(sequence.token_ids) for sequence in probe.sequences) >= embeddings.num_embeddings:
        return float("inf")
    found = sequence_logprobs(policy, [sequence.token_ids for sequence in probe.sequences])
    recorded = [value for sequence in probe.sequences for value in sequence.logprobs]
    return mean_difference([value for values in found for value in values], recorded)
