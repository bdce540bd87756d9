"""Proof that a server samples from the policy it was given.

Adapters that never reach the engine are a known way to lose weeks. So after every weight sync the server samples one
probe, and its log-probs are compared with those of a full forward pass through the local weights, the learner's own
reading of them, and with those of the policies that the server might be sampling from instead.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm_server.errors import WrongPolicy


class Precision(NamedTuple):
    """The mean difference between the log-probs of two correct implementations."""

    tolerance: float
    """More than this is another policy."""
    resolution: float
    """Policies nearer to each other than this can't be told apart."""


PRECISIONS = {"float32": Precision(1e-3, 1e-5), "bfloat16": Precision(5e-2, 2e-2)}


class LocalModel:
    """Log-probs of the base model and of its checkpoints, by a full forward pass on the CPU.

    The model is loaded for each use and let go: memory is the servers'.
    """

    def __init__(self, base_policy: Path, config: PolicyConfig) -> None:
        self._folder = base_policy
        self._config = config.model_copy(update={"device": "cpu"})

    @property
    def precision(self) -> Precision:
        return PRECISIONS[self._config.dtype]

    def logprobs(self, policies: Sequence[Path | None], ids: Sequence[int]) -> list[list[float]]:
        """For each policy (None: the base), the log-probs of the second and later ids at temperature 1.

        Raises ValueError, naming file and tensor, for a checkpoint that does not fit the base model.
        """
        import torch

        from tasks.core.engines.in_process.policy_weights import PolicyWeights
        from tasks.core.policies.loading import load_base_model

        model = load_base_model(self._folder, self._config)
        weights = PolicyWeights(model)
        sequence = torch.tensor(ids)
        found = []
        for policy in policies:
            weights.load(policy)
            with torch.inference_mode():
                logits = model(sequence[None]).logits[0, :-1].float()
            found.append(logits.log_softmax(-1).gather(1, sequence[1:, None])[:, 0].tolist())
        return found


def mean_difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Mean |difference| of two equally long lists of log-probs."""
    return fmean(abs(a - b) for a, b in zip(one, other, strict=True))


def check_weight_sync(
    answer: Sequence[float],
    expected: Sequence[float],
    others: Mapping[str, Sequence[float]],
    precision: Precision,
    server: str,
) -> float:
    """The mean difference of `answer` from `expected`. Raises WrongPolicy when it is not the expected policy's.

    `others` maps names of policies that the server may still be sampling from to their log-probs: the answer must be
    nearer to `expected` than half-way to any of them, where there is a way to go at this precision.
    """
    distance = mean_difference(answer, expected)
    for name, logprobs in others.items():
        apart = mean_difference(expected, logprobs)
        if apart > precision.resolution and distance >= apart / 2:
            raise WrongPolicy(
                f"{server}: the policy was not delivered: the server's log-probs differ from it by {distance:.2g} on "
                f"average, and from {name} by {mean_difference(answer, logprobs):.2g}"
            )
    if distance > precision.tolerance:
        raise WrongPolicy(
            f"{server}: the server samples from another model: its log-probs differ from the local weights' by "
            f"{distance:.2g} on average (at most {precision.tolerance:.2g} is rounding)"
        )
    return distance
