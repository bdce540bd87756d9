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
    reserved: float
    """Bytes for other things than the model: context, fragments, communication buffers."""


_MFU = 0.35
"""Measured on one H200, at packs of 8K to 32K with LoRA: 0.31 to 0.37 at 7B, 0.38 to 0.41 at 32B, counting what
checkpointing computes again (tests/benchmarks/results/gpu/mfu.json)."""

HARDWARE: dict[str, Hardware] = {
    # NVIDIA's data sheets, SXM modules, dense bf16.
    "h100": Hardware("H100 80 GB", 80 * GB, 989e12, 3.35e12, _MFU, 5 * GB),
    "h200": Hardware("H200 141 GB", 141 * GB, 989e12, 4.8e12, _MFU, 6 * GB),
    "a100": Hardware("A100 80 GB", 80 * GB, 312e12, 2.04e12, _MFU, 5 * GB),
    # NVIDIA's data sheets and architecture white papers, dense bf16 with sums in fp32. Not run here.
    "a10": Hardware("A10 24 GB", 24 * GB, 125e12, 0.6e12, _MFU, 2 * GB),
    "l4": Hardware("L4 24 GB", 24 * GB, 121e12, 0.3e12, _MFU, 2 * GB),
    "rtx3090": Hardware("RTX 3090 24 GB", 24 * GB, 71e12, 0.936e12, _MFU, 2 * GB),
    "rtx4090": Hardware("RTX 4090 24 GB", 24 * GB, 165e12, 1.008e12, _MFU, 2 * GB),
    # Two cores of an AMD EPYC, fp32, the embedded policy: 27,676 tok/s of the learner on both cores.
    "cpu": Hardware("CPU, 2 cores", 16 * GB, 80e9, 20e9, 1.0, 0.5 * GB),
}
