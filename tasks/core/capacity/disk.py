"""Bytes on disk that a run leaves. The figures per token were measured on the embedded run of 90 iterations."""

from tasks.core.capacity.flops import ModelShape, adapter_parameters, parameters
from tasks.core.capacity.memory import ADAPTER_BYTES, DTYPE_BYTES, MASTER_BYTES
from tasks.core.capacity.workload import Workload
from tasks.core.config.policy import PolicyConfig

ROLLOUT_BYTES = 3.0
"""Per token of a rollouts table: compressed ids, masks and float32 log-probs of the sampled ones."""
BATCH_BYTES = 2.5
REPORT_BYTES = 4.6
"""Per token of every rollout, as text and log-probs for the viewer."""
MOMENTS = 2
"""AdamW's, kept after every iteration beside the weights, and beside a master of weights below float32."""


def disk_bytes(load: Workload, policy: PolicyConfig, shape: ModelShape) -> dict[str, float]:
    """Bytes by artifact. DVC's cache holds them again where the file system knows no links."""
    element = DTYPE_BYTES[policy.dtype]
    lora = policy.trained == "lora"
    trained, each = (adapter_parameters(shape, policy.lora), ADAPTER_BYTES) if lora else (parameters(shape), element)
    optimized = MASTER_BYTES * (MOMENTS + (each != MASTER_BYTES))
    tokens = load.episodes.tokens
    return {
        "base model": float(parameters(shape) * element),
        "checkpoints": float(trained * ((each + optimized) * load.iterations + each)),
        "rollouts": ROLLOUT_BYTES * load.tokens + BATCH_BYTES * load.kept * tokens * load.iterations,
        "report": REPORT_BYTES * load.tokens,
    }
