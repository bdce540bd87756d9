"""A checkpoint in a base model: read and checked tensor by tensor, loaded, and removed again without a trace.

An adapter fits every model of the same shape, and on another one it means nothing: whether a base model is the one that
it was trained on, its record's log-probs tell, computed anew.
"""

import gc
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tasks.core.config.policy import PolicyConfig
from tasks.core.policies.checkpoint_files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    AGAIN,
    DELIVERY_PROBE,
    FULL_WEIGHTS,
    holds_adapter,
    require,
)
from tasks.core.policies.delivery_probe import read_probe, sequence_logprobs
from tasks.core.policies.layers import add_low_rank
from tasks.core.policies.loading import load_base_model
from tasks.core.policies.lora_targets import linear_modules
from tasks.core.records.delivery_probe import TOLERANCES, mean_difference
from tasks.core.records.files import ArtifactError, read_json

PREFIX = "base_model.model."
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "alora_invocation_tokens": (None, []),
    "modules_to_save": (None, []),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "exclude_modules": (None, []),
    "layers_to_transform": (None, []),
    "trainable_token_indices": (None, []),
    "target_parameters": (None, []),
}
"""Settings of an adapter, and the values with which it is plain LoRA."""


class LoraFile(NamedTuple):
    """The settings of a plain LoRA adapter."""

    rank: int
    alpha: float
    scaling: float
    targets: str | Sequence[str]
    """Names of modules, or an expression for them."""


def read_settings(file: Path) -> LoraFile:
    """Return the settings of an adapter. Raises ArtifactError unless it is plain LoRA."""
    settings = {"peft_type": None} | read_json(file)
    for name, values in _PLAIN.items():
        if name in settings and settings[name] not in values:
            raise ArtifactError(f"{file}: {name} is {settings[name]!r}: only plain LoRA adapters are supported")
    rank, alpha, targets = (settings.get(name) for name in ("r", "lora_alpha", "target_modules"))
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise ArtifactError(f"{file}: r and lora_alpha must be numbers, not {rank!r} and {alpha!r}")
    if not targets or not isinstance(targets, str | list):
        raise ArtifactError(f"{file}: target_modules must be names, not {targets!r}")
    return LoraFile(rank, alpha, alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank), targets)


def fitting(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], file: Path) -> Tensor:
    """Return a tensor. Raises ValueError where it is missing or has another shape than the base model needs."""
    if name not in tensors:
        raise ValueError(f"{file}: tensor {name} is missing")
    if tuple(tensors[name].shape) != shape:
        raise ValueError(f"{file}: tensor {name} has shape {tuple(tensors[name].shape)}, the base model needs {shape}")
    return tensors[name]


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Return all tensors of a checkpoint's file. Raises ArtifactError where it is missing, damaged or not finite."""
    try:
        tensors = load_file(require(file))
    except SafetensorError as error:
        raise ArtifactError(f"{file}: damaged safetensors ({error}); {AGAIN}") from None
    require_finite(tensors, file)
    return tensors


def require_finite(tensors: Mapping[str, Tensor], where: Path) -> None:
    """Raise ArtifactError, naming the first tensor with a NaN or an infinite number."""
    for name, tensor in tensors.items():
        if tensor.element_size() > 1 and not tensor.isfinite().all():  # quantised weights are no numbers by themselves
            raise ArtifactError(f"{where}: tensor {name} is not finite (NaN, or an infinite number)")


class PolicyWeights:
    """The weights of one model, switched between the base and its checkpoints.

    A LoRA adapter is merged into float32 weights (no cost per token). Next to weights of lower precision or quantised
    weights it is applied separately, because merging would round it away. The original of every changed weight is kept,
    so that nothing drifts.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._state: dict[str, Tensor] = model.state_dict()
        self._clean: dict[str, Tensor] = {}
        self._hooks: list[RemovableHandle] = []

    @torch.no_grad()
    def load(self, path: Path | None) -> None:
        """Load the checkpoint folder at `path`; None: the base. Leaves the model unchanged if it raises.

        Raises ValueError, naming file and tensor, when the checkpoint does not fit; ArtifactError when it is damaged.
        """
        if path is None:
            return self._restore()
        if holds_adapter(path) or not (path / FULL_WEIGHTS).exists():
            deltas = self._read_adapter(path)
            self._restore()
            return self._add(deltas)
        tensors = self._read_full(path / FULL_WEIGHTS)
        self._restore()
        for name, tensor in tensors.items():
            self._writable(name).copy_(tensor)
        return None

    def _read_adapter(self, folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
        """Return module name -> (A [r, in], scaled B [out, r]), both float32 on the module's device."""
        file = folder / ADAPTER_WEIGHTS
        rank, _, scaling, targets = read_settings(folder / ADAPTER_CONFIG)
        tensors = read_tensors(file)
        deltas = {}
        modules: dict[str, str] = {}
        for name in sorted(tensors):
            module, _, side = name.removeprefix(PREFIX).rpartition(".lora_")
            if not name.startswith(PREFIX) or side not in ("A.weight", "B.weight"):
                raise ValueError(f"{file}: tensor {name} is not part of a LoRA adapter")
            modules[module] = name
        for module, name in modules.items():
            layer = self._linear(module, name, file)
            first = fitting(tensors, f"{PREFIX}{module}.lora_A.weight", (rank, layer.in_features), file)
            second = fitting(tensors, f"{PREFIX}{module}.lora_B.weight", (layer.out_features, rank), file)
            device = layer.weight.device
            deltas[module] = (first.to(device).float(), second.to(device).float() * scaling)
        if missing := [name for name in linear_modules(self._model, targets) if name not in deltas]:
            raise ValueError(f"{file}: tensor {PREFIX}{missing[0]}.lora_A.weight is missing")
        return deltas

    def _linear(self, module: str, name: str, file: Path) -> nn.Linear:
        """Return the linear layer to which the adapter's tensor `name` belongs."""
        try:
            layer = self._model.get_submodule(module)
        except AttributeError:
            raise ValueError(f"{file}: tensor {name}: the base model has no module {module}") from None
        if not isinstance(layer, nn.Linear):
            raise ValueError(f"{file}: tensor {name}: {module} is a {type(layer).__name__}, not a linear layer")
        return layer

    def _add(self, deltas: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        for module, (first, second) in deltas.items():
            layer = self._model.get_submodule(module)
            if type(layer) is nn.Linear and layer.weight.dtype == torch.float32:
                self._writable(f"{module}.weight").add_(second @ first)
            else:
                self._hooks.append(layer.register_forward_hook(_Beside(first, second)))

    def _read_full(self, file: Path) -> dict[str, Tensor]:
        """Read all tensors of a full checkpoint; a tied weight may appear under one of its names only."""
        tensors, state = read_tensors(file), self._state
        for name in tensors:
            if name not in state:
                raise ValueError(f"{file}: tensor {name}: the base model has no such tensor")
            fitting(tensors, name, tuple(state[name].shape), file)
        present = {state[name].data_ptr() for name in tensors}
        missing = [name for name, tensor in state.items() if tensor.data_ptr() not in present]
        if missing:
            raise ValueError(f"{file}: tensor {missing[0]} is missing")
        return tensors

    def _writable(self, name: str) -> Tensor:
        if name not in self._clean:
            self._clean[name] = self._state[name].clone()
        return self._state[name]

    def _restore(self) -> None:
        for name, clean in self._clean.items():
            self._state[name].copy_(clean)
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


class _Beside:
    """A forward hook that adds B A x to the output, as the learner computes it."""

    def __init__(self, first: Tensor, second: Tensor) -> None:
        self._factors = first, second

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        down, up = self._factors
        if down.dtype != output.dtype:  # only the output of a quantised layer shows in which dtype it computes
            self._factors = down, up = down.to(output.dtype), up.to(output.dtype)
        return add_low_rank(output, inputs[0], down, up)


def require_base_of_adapter(checkpoint: Path, base: Path, config: PolicyConfig, named: str) -> None:
    """Load the model in the folder `base`, called `named`, with the adapter, and compare it with the adapter's record.

    Whole weights and an adapter without a record are let through: there is nothing to compare. Raises ArtifactError for
    another base or a record of other weights, ValueError where the adapter doesn't fit.
    """
    if not holds_adapter(checkpoint) or read_probe(checkpoint) is None:
        return
    model = load_base_model(base, config)
    PolicyWeights(model).load(checkpoint)
    require_recorded(model, checkpoint, config, named)
    del model
    gc.collect()  # a model's parts refer to each other, and two might not fit


def require_recorded(policy: nn.Module, checkpoint: Path, config: PolicyConfig, base: str) -> None:
    """Raise ArtifactError where `policy`, the checkpoint on the model called `base`, has not the record's log-probs."""
    probe = read_probe(checkpoint)
    if probe is None:
        return
    embeddings: nn.Embedding = policy.get_input_embeddings()  # type: ignore[operator]
    distance = float("inf")  # of a model that doesn't even know the record's tokens
    if max(max(sequence.token_ids) for sequence in probe.sequences) < embeddings.num_embeddings:
        found = sequence_logprobs(policy, [sequence.token_ids for sequence in probe.sequences])
        recorded = [value for sequence in probe.sequences for value in sequence.logprobs]
        distance = mean_difference([value for values in found for value in values], recorded)
    tolerance = max(TOLERANCES[probe.dtype], TOLERANCES[config.dtype])
    if distance > tolerance:
        raise ArtifactError(
            f"{checkpoint}: was trained on another base model than {base}: log-probs differ from those in its "
            f"{DELIVERY_PROBE} by {distance:.2g} on average (rounding explains at most {tolerance:.2g})"
        )
