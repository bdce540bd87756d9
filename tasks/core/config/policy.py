"""The `policy` section of params.yaml: the base model and what of it is trained."""

import datetime
import re
from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from pydantic import Field, model_validator

from tasks.core.config.section import Section

Dtype = Literal["float32", "bfloat16"]
ALL_LINEAR: Final = "all-linear"
PACKAGED = "pip:"
"""How a `source` begins that is a Python package."""
GGUF = ".gguf"
"""How a `source` ends that is a GGUF file."""
RECIPE = "recipe"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


class LoraSettings(Section):
    """LoRA as in peft. The paper: rank 16, alpha 32, on the attention and MLP projections, adapter in fp32."""

    rank: int = Field(8, ge=1)
    """Rank of the adapter's matrices."""
    alpha: int = Field(16, ge=1)
    """Weight of the adapter, times its rank."""
    targets: Literal["all-linear"] | tuple[str, ...] = ALL_LINEAR
    """Linear modules that are adapted. all-linear: every one but the head, as in PEFT (of Qwen2 and Llama these are the
    paper's seven); or names of linear modules, each of which must exist. Experts that are fused into one tensor are not
    adapted."""


class WarmStart(Section):
    """Supervised training of all weights of the base model on demonstrations of the world, before LOOP.

    First on perfect demonstrations, then on imperfect ones, which leave reinforcement learning something to do. A world
    without scripted play recites the solutions of its training tasks, which are perfect: set `imperfect_demonstrations`
    and `imperfect_steps` to 0.
    """

    constants: ClassVar[Mapping[str, str]] = {"seed": "0", "tokens_per_step": "2048", "warmup_steps": "4"}

    perfect_demonstrations: int = Field(120, ge=1)
    """Demonstrations without a flaw, which come first. Of solutions there are as many as training tasks at most."""
    perfect_steps: int = Field(14, ge=1)
    """Optimizer steps on them."""
    imperfect_demonstrations: int = Field(250, ge=0)
    """Demonstrations with flaws, which follow."""
    imperfect_steps: int = Field(14, ge=0)
    """Optimizer steps on them."""
    learning_rate: float = Field(4e-4, gt=0)
    """Learning rate of the perfect phase. It falls to a tenth; the imperfect phase begins at half of it."""
    tokens_per_forward: int = Field(2048, ge=1)
    """Positions of one padded pass. On a CPU the passes of a step run on all cores at once."""

    @model_validator(mode="after")
    def _steps_have_demonstrations(self) -> "WarmStart":
        if (self.imperfect_demonstrations == 0) != (self.imperfect_steps == 0):
            raise ValueError("imperfect_demonstrations and imperfect_steps: one without the other does nothing")
        return self


class ChatSettings(Section):
    """How conversations are made with the base model's chat template."""

    earlier_thoughts: Literal["kept", "as_template"] = "kept"
    """Fate of the thoughts of earlier turns. kept: they stay, token by token as they were sampled, also where the
    template leaves them out. as_template: where the template leaves them out, so does the conversation. Each turn is
    then trained on the prompt that it was sampled from, and an update passes over a conversation once per thought."""
    enable_thinking: bool | None = None
    """The template's variable of this name. null: not set."""
    date: datetime.date | None = None
    """Day that a template shows as today's. null: the world's own, where its clock stands still; in other
    worlds a template that shows the date is refused."""


class PolicyConfig(Section):
    """The base policy and the trainable part of it."""

    source: str = "data/base_policies/pocket"
    """Base model. A Hugging Face hub id, a folder, a GGUF file, or a package. `pip:NAME==VERSION` is a package that
    brings a GGUF file; several, with blanks between, bring its pieces. `recipe` trains the embedded policy of the world
    from scratch, `recipe:imitation` without its flawed demonstrations, and `recipe:successes` on those of them alone
    that solve their task."""
    revision: str | None = None
    """Commit of the hub id, or SHA-256 of the GGUF file. Required for a hub id and for pieces, to pin the base
    model."""
    context_length: int | None = Field(None, ge=1)
    """Longest conversation in tokens, if below the base model's. null: the base model's."""
    chat: ChatSettings = ChatSettings()
    """How the base model's chat template is used."""
    warm_start: WarmStart | None = None
    """Supervised training of the base model before LOOP. null: it is used as it is."""
    dtype: Dtype = "float32"
    """Number format of the base model. bfloat16 is several times slower on a CPU without instructions for it (AMX,
    AVX512-BF16)."""
    device: str = "auto"
    """Device of policy and learner. auto: CUDA if there is any, else CPU; or a torch device name."""
    cpu_threads: int | None = Field(1, ge=1)
    """Threads of a torch operation on a CPU. It holds in every stage, since results depend on it. null: torch's
    default."""
    trained: Literal["lora", "full"] = "lora"
    """The trained part, a LoRA adapter or all weights."""
    lora: LoraSettings = LoraSettings()
    """LoRA as in PEFT."""

    @property
    def may_be_hub_id(self) -> bool:
        """Whether `source` has the form of a hub id, as a relative path of two parts has too."""
        return bool(_HUB_ID.fullmatch(self.source)) and not self.source.startswith(("data/", "./", "../"))

    @property
    def is_recipe(self) -> bool:
        """Whether the base model is trained here, as a recipe says."""
        return self.source.partition(":")[0] == RECIPE

    @property
    def is_folder(self) -> bool:
        """Whether `source` names a folder, or a file: it is nothing that is pinned by its name, or by its revision."""
        if self.source.endswith(GGUF):
            return True
        pinned = self.is_recipe or self.source.startswith(PACKAGED)
        return not (pinned or (self.may_be_hub_id and self.revision is not None))
