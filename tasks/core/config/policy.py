"""The `policy` section of params.yaml: the base model and what of it is trained."""

from typing import Literal

from pydantic import Field

from tasks.core.config.section import Section


class LoraSettings(Section):
    """LoRA as in peft. The paper: rank 16, alpha 32, on the attention and MLP projections, adapter in fp32."""

    rank: int = Field(8, ge=1)
    alpha: int = Field(16, ge=1)
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class PolicyConfig(Section):
    """The base policy and the trainable part of it."""

    source: str = "data/base_policies/pocket"
    """A folder, a Hugging Face hub id, or `recipe`: train the embedded policy from scratch."""
    revision: str | None = None
    """Commit of the hub id; required for one, so that the base model is pinned."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"
    """`auto`: CUDA if there is any, else CPU; or a torch device name."""
    cpu_threads: int | None = Field(1, ge=1)
    """Threads of one torch operation on a CPU, in every stage: results depend on it. None: torch's default."""
    trained: Literal["lora", "full"] = "lora"
    lora: LoraSettings = LoraSettings()
