"""Seconds of a run that are neither rollouts nor updates: starting, loading, delivering, hashing, copying. Pure.

Each is bytes over a rate of `hardware`, or a count times seconds each; `hardware` states which figures are measured and
which assumed. Waiting for other users of a machine or of its file system is not included.
"""

from dataclasses import dataclass

from tasks.core.capacity.flops import ModelShape, adapter_parameters, parameters
from tasks.core.capacity.hardware import Hardware
from tasks.core.capacity.memory import ADAPTER_BYTES, DTYPE_BYTES, MASTER_BYTES
from tasks.core.capacity.workload import Workload, plays_of_a_test_split
from tasks.core.config.params import Params
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.splits import TEST_SPLITS

ROLLOUT_BYTES = 3.0
"""Bytes per token of a rollouts table: compressed ids, masks and float32 log-probs of the sampled tokens."""
BATCH_BYTES = 2.5
REPORT_BYTES = 4.6
"""Bytes per token of every rollout, as text and log-probs for the viewer."""
MOMENTS = 2
"""AdamW's moments, kept after every iteration with the weights (and with the masters of weights below float32)."""


def disk_bytes(load: Workload, policy: PolicyConfig, shape: ModelShape) -> dict[str, float]:
    """Return bytes by artifact. DVC's cache holds them again where the file system has no links."""
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


ONCE = 13
"""Stages that exist once, both scores among them."""
PER_ITERATION = 3
"""Stages of an iteration: collection, advantages, update."""
PROBE_S = 1.0
"""Seconds to prove that a server samples from the given policy, beyond the adapter's upload."""


@dataclass(frozen=True)
class Overheads:
    """Seconds of the whole run, by cause."""

    stages: float
    """Starts and bookkeeping of stages."""
    engine_starts: float
    """Starts of servers: around each update where engines and learner take turns; otherwise once."""
    learner_loading: float
    """Reading the base model, in the processes that the launcher starts for each update; a single process keeps it."""
    delivery: float
    """Reading the adapter of every policy that is played, and the proof that a server has it."""
    hashing: float
    """Hashing the base model once, and the artifacts of each iteration as DVC and the stages do."""
    copies: float
    """Copies into DVC's cache, where the file system has neither reflinks nor hard links: the worst case."""

    @property
    def total(self) -> float:
        """Return the sum without copies, since most file systems link."""
        return self.stages + self.engine_starts + self.learner_loading + self.delivery + self.hashing


def overheads(
    load: Workload, params: Params, shape: ModelShape, hardware: Hardware, written: float, *, releases_device: bool
) -> Overheads:
    """Return the overheads of a run that writes `written` bytes of artifacts besides the base model.

    `releases_device`: engines are stopped around each update.
    """
    engine, own = params.engine.kind, params.engine.own
    served, started_here = engine.shared_device(own) is not None, engine.starts_servers(own)
    base = parameters(shape) * DTYPE_BYTES[params.policy.dtype]
    adapter = adapter_parameters(shape, params.policy.lora) * ADAPTER_BYTES if params.policy.trained == "lora" else base
    played = load.iterations + load.evaluations + len(TEST_SPLITS) * plays_of_a_test_split(params)
    starts = (load.iterations + 1 if releases_device else 1) if started_here else 0
    launched = load.iterations if params.update.distributed.size > 1 else 0
    count = ONCE + PER_ITERATION * load.iterations + load.evaluations
    return Overheads(
        stages=hardware.start_s * (not served) + hardware.stage_s * count,
        engine_starts=starts * (hardware.start_s + base / hardware.disk),
        learner_loading=launched * base / hardware.disk,
        delivery=played * (adapter / hardware.disk + (PROBE_S if served else 0.0)),
        hashing=(base + 2 * written) / hardware.hashing,
        copies=written / hardware.disk,
    )
