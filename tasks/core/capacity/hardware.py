"""Accelerators, and the share of their data sheets' rates that a run reaches."""

from dataclasses import dataclass

GB = 1e9
GIB = 2**30


@dataclass(frozen=True)
class Hardware:
    """One device. Rates are per device and second."""

    name: str
    memory: float
    """Bytes that a process may allocate."""
    flops: float
    """FLOPs per second of dense matrix products in the policy's dtype, by the data sheet (a CPU: as measured)."""
    bandwidth: float
    """Bytes of memory read per second."""
    learner_share: float
    """Share of `flops` that the learner's useful work reaches (MFU)."""
    prefill_share: float
    """Share of `flops` that an engine reaches while it reads prompts."""
    decode_share: float
    """Share of `bandwidth` that an engine reaches while it samples."""
    step_s: float
    """Seconds of one decoding step besides reading and computing: launches, scheduling, sampling."""
    reserved: float
    """Bytes for other things than the model: context, fragments, communication buffers."""
    stage_s: float
    """Seconds of a stage besides its work: its process, DVC's checks, its tables and documents."""
    start_s: float
    """Seconds of the first stage that loads libraries, and of one engine's start besides reading its weights."""
    disk: float = 1.5 * GB
    """Bytes per second of reading from disk, or writing."""
    hashing: float = 0.5 * GB
    """Bytes per second of SHA-256 (a base model's files) and MD5 (DVC's), on one core."""


_GPU = {
    "learner_share": 0.35,
    "prefill_share": 0.5,
    "decode_share": 0.6,
    "step_s": 8e-3,
    "stage_s": 3.0,
    "start_s": 90.0,
}
"""The learner's share was measured on one H200, at packs of 8K to 32K with LoRA: 0.31 to 0.37 at 7B, 0.38 to 0.41 at
32B, counting what checkpointing computes again (tests/benchmarks/results/gpu/mfu.json). 60% of the bandwidth and 8 ms a
step are assumed, not measured here: vLLM reaches them with large batches.
"""

HARDWARE: dict[str, Hardware] = {
    # NVIDIA's data sheets, SXM modules, dense bf16.
    "h100": Hardware("H100 80 GB", 80 * GB, 989e12, 3.35e12, reserved=5 * GB, **_GPU),
    "h200": Hardware("H200 141 GB", 141 * GB, 989e12, 4.8e12, reserved=6 * GB, **_GPU),
    "a100": Hardware("A100 80 GB", 80 * GB, 312e12, 2.04e12, reserved=5 * GB, **_GPU),
    # NVIDIA's data sheets and architecture white papers, dense bf16 with sums in fp32. Not run here.
    "a10": Hardware("A10 24 GB", 24 * GB, 125e12, 0.6e12, reserved=2 * GB, **_GPU),
    "l4": Hardware("L4 24 GB", 24 * GB, 121e12, 0.3e12, reserved=2 * GB, **_GPU),
    "rtx3090": Hardware("RTX 3090 24 GB", 24 * GB, 71e12, 0.936e12, reserved=2 * GB, **_GPU),
    "rtx4090": Hardware("RTX 4090 24 GB", 24 * GB, 165e12, 1.008e12, reserved=2 * GB, **_GPU),
    # Two cores of an AMD EPYC, fp32, the embedded policy: from tests/benchmarks/results/learner.json (27,676 tok/s on
    # both cores) and rollouts.json (5,102 tok/s with up to 144 rows on one); see tests/core/capacity.
    "cpu": Hardware(
        "CPU, 2 cores", 16 * GB, 80e9, 20e9, learner_share=1.0, prefill_share=0.5, decode_share=0.5, step_s=2e-3,
        reserved=0.5 * GB, stage_s=0.5, start_s=8.0,
    ),
}  # fmt: skip
