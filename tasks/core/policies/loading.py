"""Load and save the parts of a policy: tokenizer, frozen base model, trainable part, checkpoint folder.

A checkpoint folder is a peft adapter (`adapter_config.json`, `adapter_model.safetensors`) or, when all parameters are
trained, a model (`config.json`, `model.safetensors`): vLLM and transformers read both. It does not include the
optimizer's state, which belongs to the learner.
"""

import json
import logging
import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.policies.checkpoint_files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    AGAIN,
    FULL_CONFIG,
    FULL_WEIGHTS,
    require,
    weights_file,
)
from tasks.core.policies.lora_targets import adapted_modules, peft_names, require_adapted
from tasks.core.processes.resources import return_large_blocks
from tasks.core.records.files import ArtifactError, read_json, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

ONE_BUILDS = threading.Lock()
"""Held while a model is built: meanwhile transformers and accelerate patch classes for all threads of the process."""
_ADAPTER_NAME = "default"
_MORE_OUTPUTS = ("output_router_logits", "output_attentions", "output_hidden_states")
"""Keys of config.json by which a pass returns more. Nothing here reads that; a loss of the router fails on a cache."""


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerFast":
    """Return the tokenizer with its chat template. Raises ArtifactError when the folder holds none."""
    from transformers import AutoTokenizer

    require(folder / "tokenizer_config.json")
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)  # type: ignore[return-value]


def load_base_model(folder: Path, config: PolicyConfig) -> "PreTrainedModel":
    """Return the frozen base model in evaluation mode, in `config.dtype` on `config.device`.

    Raises ArtifactError, also where a tensor is missing or has another shape: transformers would draw it at random.

    Sets the number of torch's threads for the process, so that every stage on a CPU computes alike, and makes malloc
    return freed memory to the system.
    """
    require(folder / FULL_CONFIG)
    dtype: torch.dtype = getattr(torch, config.dtype)
    try:
        with ONE_BUILDS:
            from transformers import AutoModelForCausalLM
            from transformers.utils.logging import disable_progress_bar

            disable_progress_bar()  # type: ignore[no-untyped-call]  # a line or more for each load, in files too
            logging.getLogger("transformers.modeling_utils").disabled = True  # it reports what is refused below
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, local_files_only=True, output_loading_info=True, ignore_mismatched_sizes=True
            )
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{folder}: not a base model ({error}); {AGAIN}") from None
    model, found = loaded
    where = f"{folder} (policy.source {config.source})"
    if found["missing_keys"]:
        raise ArtifactError(f"{where}: tensor {min(found['missing_keys'])} is missing from the model's files")
    if found["mismatched_keys"]:
        name, saved, needed = min(found["mismatched_keys"])
        raise ArtifactError(f"{where}: tensor {name} has shape {list(saved)}, config.json says {list(needed)}")
    return freeze_base(model, config).to(device(config))  # type: ignore[arg-type, no-any-return]


def freeze_base(model: "PreTrainedModel", config: PolicyConfig) -> "PreTrainedModel":
    """Switch off gradients, dropout and outputs besides the logits.

    If `config` computes on a CPU, set the process's threads and malloc.
    """
    if device(config).type == "cpu":
        return_large_blocks()
        if config.cpu_threads is not None:
            torch.set_num_threads(config.cpu_threads)
    for part in (model.config, model.config.get_text_config()):
        part.update({**{name: False for name in _MORE_OUTPUTS if getattr(part, name, False)}, "return_dict": True})
    model.requires_grad_(False)
    model.train(False)
    return model


def device(config: PolicyConfig) -> torch.device:
    """Return the torch device that `config.device` names; `auto` is CUDA if there is any, else the CPU."""
    if config.device != "auto":
        return torch.device(config.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def trainable_policy(model: nn.Module, config: PolicyConfig, checkpoint: Path | None, seed: int) -> nn.Module:
    """Return `model` with its trainable part added: a peft model with LoRA layers, or all of its own parameters.

    The weights are those of `checkpoint`. Without a checkpoint they are LoRA's as in its paper (A uniform from `seed`,
    B zero, so the policy equals the base), or the base's own. `model` itself is changed. Passing the returned model
    again with a checkpoint (a warm process) leaves it exactly as a fresh one would be. The adapter is float32 whatever
    the base's dtype (LOOP). The model stays in evaluation mode: dropout would make the first importance weights differ
    from 1.

    Raises ValueError, naming tensor or setting, when the checkpoint does not fit, and ArtifactError when it is damaged.
    """
    policy = with_trained_part(model, config)
    if is_lora(policy):
        _initialise_lora(policy, seed)
    if checkpoint is not None:
        load_weights(policy, checkpoint)
    return policy


def with_trained_part(model: nn.Module, config: PolicyConfig) -> nn.Module:
    """Return `model` with the part that `config` trains marked so.

    LoRA's matrices are added without values, where W lies.
    """
    return model.requires_grad_(True) if config.trained == "full" else _with_lora(model, config.lora)


def load_weights(policy: nn.Module, checkpoint: Path) -> None:
    """Copy a checkpoint's weights into `policy`, all or none. Raises ValueError (does not fit) or ArtifactError.

    Every process of a sharded policy reads its own part.
    """
    if is_lora(policy):
        _require_equal_settings(policy, checkpoint / ADAPTER_CONFIG)
    path, expected = weights_file(checkpoint), trained_tensors(policy)
    with opened(path) as file, torch.no_grad():
        _require_fit({name: file.get_slice(name).get_shape() for name in file.keys()}, expected, path)  # noqa: SIM118
        for name, tensor in expected.items():
            tensor.copy_(read_tensor(file, name, tensor))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file to read single tensors from. Raises ArtifactError when it is missing or damaged."""
    try:
        with safe_open(require(path), framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ArtifactError(f"{path}: damaged safetensors ({error}); {AGAIN}") from None


def read_tensor(file: Any, name: str, like: Tensor) -> Tensor:
    """Read a tensor, or this process's part of it, from an `opened` file; with dtype, device and layout of `like`."""
    if not hasattr(like, "full_tensor"):
        return file.get_tensor(name).to(like.device, like.dtype)  # type: ignore[no-any-return]
    from torch.distributed.tensor import DTensor

    layout: Any = like
    (chunk,) = layout.__create_chunk_list__()
    bounds = zip(chunk.offsets, chunk.sizes, strict=True)
    part = file.get_slice(name)[tuple(slice(offset, offset + size) for offset, size in bounds)]
    part = part.to(like.device, like.dtype)
    return DTensor.from_local(
        part, layout.device_mesh, layout.placements, shape=like.shape, stride=like.stride(), run_check=False
    )


def save_policy(policy: nn.Module, folder: Path, weights: dict[str, Tensor] | None = None) -> None:
    """Write the checkpoint of `policy` into `folder` (made if missing). Same weights, same bytes.

    `weights`: the policy's trained tensors where they lie elsewhere (gathered from several processes).
    """
    folder.mkdir(parents=True, exist_ok=True)
    trained = trained_tensors(policy) if weights is None else weights
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in trained.items()}
    if is_lora(policy):
        write_json(folder / ADAPTER_CONFIG, _adapter_settings(policy))
    else:
        write_json(folder / FULL_CONFIG, json.loads(policy.config.to_json_string()))  # type: ignore[operator, union-attr]
    name = ADAPTER_WEIGHTS if is_lora(policy) else FULL_WEIGHTS
    save_file(tensors, folder / name, metadata={"format": "pt"})


def trained_tensors(policy: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that a checkpoint holds, by their names in its file (tied tensors once); views, not copies."""
    infix = f".{_ADAPTER_NAME}."
    if is_lora(policy):
        return {name.replace(infix, "."): weight for name, weight in policy.named_parameters() if ".lora_" in name}
    return untied_tensors(policy)


def untied_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and saved buffers, a tied tensor only under the first of its names."""
    seen: set[int] = set()
    state = model.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if id(tensor) not in seen and not seen.add(id(tensor))}  # type: ignore[func-returns-value]


def is_lora(policy: nn.Module) -> bool:
    """Return whether `policy` is a base model with an adapter."""
    return hasattr(policy, "peft_config")


def _with_lora(model: nn.Module, settings: LoraSettings) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    if is_lora(model):
        return model
    chosen = adapted_modules(model, settings.targets)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=peft_names(model, settings.targets, chosen),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    empty = next(model.parameters()).is_meta
    with warnings.catch_warnings():  # PEFT asks transformers by a deprecated name
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        policy = get_peft_model(model, config, adapter_name=_ADAPTER_NAME, low_cpu_mem_usage=empty)  # type: ignore[arg-type]
    require_adapted(policy, chosen)
    return policy


def _initialise_lora(policy: nn.Module, seed: int) -> None:
    """Draw the adapter on the CPU from its own generator, so that neither device nor call order changes the weights."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in trained_tensors(policy).items():
            drawn = torch.zeros(weight.shape)
            if ".lora_A." in name:
                nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator)
            weight.copy_(drawn)


def _adapter_settings(policy: nn.Module) -> dict[str, Any]:
    """Return peft's own description of the adapter, without what depends on hash order or on the machine's paths."""
    settings: dict[str, Any] = policy.peft_config[_ADAPTER_NAME].to_dict()  # type: ignore[index, operator, union-attr]
    plain = {key: sorted(value) if isinstance(value, set) else value for key, value in settings.items()}
    plain.update(base_model_name_or_path=None, inference_mode=True)
    return json.loads(json.dumps(plain))  # type: ignore[no-any-return]


def _require_equal_settings(policy: nn.Module, path: Path) -> None:
    """Compare settings that tensors do not show: a wrong alpha, unlike a wrong rank, silently scales the adapter."""
    saved, expected = read_json(path), _adapter_settings(policy)
    for key in ("lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "peft_type"):
        if saved.get(key, expected[key]) != expected[key]:
            raise ValueError(f"{path}: {key} is {saved[key]}, but the policy in use has {expected[key]}")


def _require_fit(saved: dict[str, list[int]], expected: dict[str, Tensor], path: Path) -> None:
    for name, tensor in expected.items():
        if name not in saved:
            raise ValueError(f"{path}: does not fit the base model: tensor {name} is missing")
        if saved[name] != list(tensor.shape):
            shapes = f"{saved[name]}, the policy in use needs {list(tensor.shape)}"
            raise ValueError(f"{path}: does not fit the base model: tensor {name} has shape {shapes}")
    for name in saved:
        if name not in expected:
            raise ValueError(f"{path}: unexpected tensor {name}: the base model has no such weight")


_TEXT_MODEL = "model.language_model."
"""Prefix of the text model's tensors in the files of a model with a vision tower."""


def empty_base_model(folder: Path, config: PolicyConfig) -> "PreTrainedModel":
    """Build `load_base_model`'s model with parameters on the meta device and real buffers (rotary frequencies).

    `fill_base` fills it after sharding: no process ever holds all of it. Names and shapes of tensors are not converted,
    as transformers' own loader does for some architectures: the files must hold the tensors under the names that the
    model has (Qwen2, Llama), or, for a model with a vision tower, under those of its text model (Qwen3.5).
    """
    require(folder / FULL_CONFIG)
    with ONE_BUILDS:
        from accelerate import init_empty_weights
        from transformers import AutoConfig, AutoModelForCausalLM

        sizes = AutoConfig.from_pretrained(folder, local_files_only=True)
        with init_empty_weights(include_buffers=False):
            model = AutoModelForCausalLM.from_config(sizes, dtype=getattr(torch, config.dtype))  # type: ignore[no-untyped-call]
    model.tie_weights()
    return freeze_base(model, config)


def allocate(policy: nn.Module, device: torch.device) -> None:
    """Give the parameters of an empty policy (sharded: this process's parts) memory on `device`, but no values yet."""
    held = {name: buffer.clone() for name, buffer in policy.named_buffers()}
    policy.to_empty(device=device)
    for name, buffer in policy.named_buffers():
        buffer.copy_(held[name])
    model: Any = policy.get_base_model() if is_lora(policy) else policy  # type: ignore[operator]
    model.tie_weights()


def fill_base(policy: nn.Module, folder: Path, *, quiet: bool = False) -> None:
    """Read the base model's weights; of a sharded policy this process's parts. Raises ArtifactError naming a tensor."""
    left = {  # all except the adapter
        name.removeprefix("base_model.model.").replace(".base_layer.", "."): tensor
        for name, tensor in untied_tensors(policy).items()
        if ".lora_" not in name
    }
    with tqdm(total=len(left), desc="base model", unit="tensor", leave=False, disable=quiet) as bar:
        for path in sorted(folder.glob("*.safetensors")):
            bar.update(_fill_from(path, left))
    if left:
        raise ArtifactError(
            f"{folder}: no file holds tensor {min(left)} under this name, so the ranks cannot read their parts of it; "
            "update.distributed.sharding: replicated loads the model whole, on every rank"
        )


@torch.no_grad()
def _fill_from(path: Path, left: dict[str, Tensor]) -> int:
    """Fill the tensors of `left` that the file holds, and remove them from `left`; return their number."""
    with opened(path) as file:
        names = {key.replace(_TEXT_MODEL, "model.", 1): key for key in file.keys()}  # noqa: SIM118
        names_here = sorted(left.keys() & names.keys())
        for tensor_name, name in ((tensor_name, names[tensor_name]) for tensor_name in names_here):
            tensor, shape = left.pop(tensor_name), file.get_slice(name).get_shape()
            if shape != list(tensor.shape):
                raise ArtifactError(f"{path}: tensor {name} has shape {shape}, not {list(tensor.shape)}")
            tensor.copy_(read_tensor(file, name, tensor))
    return len(names_here)
