"""The records that prove deliveries: those next to the policies, else computed.

A policy from elsewhere, or of an earlier version, has no record. Then the model is loaded once, on the CPU, and its
log-probs are kept in `.loopline/delivery_probes/` for all later servers, deliveries and processes.
"""

import hashlib
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from tasks.core.config.policy import PolicyConfig
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.delivery_probe import lasting_sequences, probe_sequence, read_probe, sequence_logprobs
from tasks.core.policies.loading import empty_base_model, load_base_model
from tasks.core.policies.policy_weights import PolicyWeights
from tasks.core.records.delivery_probe import DeliveryProbe
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError, fingerprint

STATE_FOLDER = Path(".loopline") / "delivery_probes"
_log = logging.getLogger(__name__)


class LocalModel:
    """Log-probs of the base model and its checkpoints, by full forward passes on the CPU.

    The model is loaded for each use and then released, because the servers need the memory.
    """

    def __init__(self, base_policy: Path, config: PolicyConfig) -> None:
        self._folder = base_policy
        self._config = config.model_copy(update={"device": "cpu"})

    def readings(self, policies: Sequence[Path | None], sequences: Sequence[Sequence[int]]) -> list[list[list[float]]]:
        """Return each policy's (None: the base) log-probs of each sequence's ids except the first, at temperature 1.

        Raises ValueError, naming file and tensor, for a checkpoint that does not fit the base model.
        """
        model = load_base_model(self._folder, self._config)
        weights, logprobs = PolicyWeights(model), []
        for policy in policies:
            weights.load(policy)
            logprobs.append(sequence_logprobs(model, sequences))
        return logprobs


class ProbeRecords:
    """The records of the policies of one base model."""

    def __init__(self, base_policy: Path, config: PolicyConfig, chat: ChatFormat, vocabulary: int) -> None:
        self._base, self._config, self._chat, self._vocabulary = base_policy, config, chat, vocabulary
        self._asked = threading.Lock()  # several servers may ask for the record of the same policy at once

    def of(self, policy: Path | None) -> DeliveryProbe:
        """Return a policy's record (None: the base model's); compute it if there is none.

        Raises ArtifactError for a damaged record, ValueError for a checkpoint that does not fit the base model.
        """
        with self._asked:
            written = None if policy is None else read_probe(policy)
            return written or self._kept(policy) or self._computed(policy)

    def require_fit(self, policy: Path) -> None:
        """Raise ValueError, naming the tensor, if an adapter does not fit the base model. Loads no weights."""
        PolicyWeights(empty_base_model(self._base, self._config)).load(policy)

    def _kept(self, policy: Path | None) -> DeliveryProbe | None:
        try:
            return read_document(self._place(policy), DeliveryProbe)
        except ArtifactError:
            return None

    def _computed(self, policy: Path | None) -> DeliveryProbe:
        name = policy or self._base
        _log.warning("%s: its folder has no record of its log-probs; computing one on the CPU, once", name)
        sequences = lasting_sequences(self._chat, self._vocabulary)
        policies = [None] if policy is None else [policy, None]
        readings = LocalModel(self._base, self._config).readings(policies, sequences)
        columns = zip(sequences, readings[0], readings[-1], strict=True)
        probe = DeliveryProbe(
            weights=None if policy is None else policy_digest(policy),
            dtype=self._config.dtype,
            device="cpu",
            lasting=tuple(probe_sequence(ids, reading, base) for ids, reading, base in columns),
        )
        write_document(self._place(policy), probe)
        return probe

    def _place(self, policy: Path | None) -> Path:
        weights = "" if policy is None else policy_digest(policy)
        identity = repr((fingerprint(self._base), self._config.dtype, weights))
        return STATE_FOLDER / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
