"""vLLM's pinned lists: one version for both kinds of machine."""

import pytest

from tasks.core.engines.vllm.interpreter import VLLM_CPU, VLLM_GPU, vllm_recipe
from tasks.core.interpreters import InterpreterRecipe


@pytest.mark.parametrize("recipe", [VLLM_CPU, VLLM_GPU], ids=lambda recipe: recipe.name)
def test_requirements_are_pinned_and_name_no_index(recipe: InterpreterRecipe) -> None:
    lines = recipe.requirements.read_text().splitlines()
    assert all(line.count("==") == 1 and "/" not in line for line in lines)


def test_both_machines_run_one_version() -> None:
    cpu, gpu = VLLM_CPU.requirements.read_text(), VLLM_GPU.requirements.read_text()
    version = next(line.partition("==")[2] for line in cpu.splitlines() if line.startswith("vllm-cpu=="))
    assert f"vllm=={version}" in gpu.splitlines()
    assert "torch==2.13.0+cpu" in cpu.splitlines() and "torch==2.13.0" in gpu.splitlines()
    assert "torchvision" not in cpu


def test_the_device_decides_which_build() -> None:
    assert vllm_recipe("cuda") is VLLM_GPU
    assert vllm_recipe("cpu") is VLLM_CPU
