"""Bytes on disk that a run leaves. The figures per token were measured on the embedded run of 90 iterations."""

from tasks.core.capacity.flops import ModelShape, adapter_parameters, parameters
from tasks.core.capacity.memory import DTYPE_BYTES
from tasks.core.capacity.workload import Workload
from tasks.core.config.policy import PolicyConfig

ROLLOUT_BYTES = 3.0
"""Per token of a rollouts table: compressed ids, masks and float32 log-probs of the sampled ones."""
BATCH_BYTES = 2.5
REPORT_BYTES = 4.6
"""Per token of every rollout, as text and log-probs for the viewer."""
CHECKPOINT_COPIES = 3
"""Weights and AdamW's two moments are kept after every iteration."""


def disk_bytes(load: Workload, policy: PolicyConfig, shape: ModelShape) -> dict[str, float]:
    """Bytes by artifact. DVC's cache holds them again where the file system knows no links."""
    element = DTYPE_BYTES[policy.dtype]
    lora = policy.trained == "lora"
    trained = adapter_parameters(shape, policy.lora) * 4 if lora else parameters(shape) * element
    tokens = load.episodes.tokens
    return {
        "base model": float(parameters(shape) * element),
        "checkpoints": float(trained * CHECKPOINT_COPIES * load.iterations + trained),
        "rollouts": ROLLOUT_BYTES * load.tokens + BATCH_BYTES * load.kept * tokens * load.iterations,
        "report": REPORT_BYTES * load.tokens,
    }
