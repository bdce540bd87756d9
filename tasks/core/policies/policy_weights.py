"""Loading a policy checkpoint into a base model, and removing it again without a trace."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tasks.core.policies.adapter_file import PREFIX, adapted_by, factors, fitting, read_settings, read_tensors
from tasks.core.policies.checkpoint_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, FULL_WEIGHTS, holds_adapter
from tasks.core.policies.lora_product import add_low_rank
from tasks.core.policies.lora_targets import linear_modules


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
        for module, name in adapted_by(tensors, file).items():
            layer = self._linear(module, name, file)
            first, second = factors(tensors, module, (layer.out_features, layer.in_features), rank, file)
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
