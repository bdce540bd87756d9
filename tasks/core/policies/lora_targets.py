"""The modules that LoRA adapts: `policy.lora.targets`, checked against the model.

Only linear modules are adapted, since only these are computed alike by the learner, this process's engine and vLLM.
Experts that are fused into one tensor are not modules, so they stay as they are. A weight that two modules share would
get the adapter in only one of them. A vision tower gets none: rollouts are text, so it would never learn.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import nn

from tasks.core.config.policy import ALL_LINEAR

_MAMBA = {"falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"}
"""Models whose kernels read the weight of `out_proj` without calling its module; PEFT refuses to adapt it."""


def adapted_modules(model: nn.Module, targets: str | Sequence[str]) -> list[str]:
    """Return the full names of the linear modules that `targets` means in `model`.

    Raises ValueError naming a target that matches none, or a module whose weight another module shares.
    """
    linear = [name for name, module in _text_modules(model) if isinstance(module, nn.Linear)]
    shared = _shared_weights(model)
    if targets == ALL_LINEAR:
        left_out = _taken_for_experts(model, linear) | set(shared)
        chosen = [name for name in linear if name not in left_out and not _is_left_out(model, name)]
    else:
        chosen = [name for name in linear if _matches(name, targets)]
        _require_matches(model, targets, linear)
    for name in chosen:
        if name in shared:
            raise _error(
                model, f"{name} shares its weight with {shared[name]}, so that an adapter would change one of them only"
            )
    if taken := _taken_for_experts(model, chosen):
        raise _error(model, f"PEFT takes {min(taken)} for the experts, which are fused into one tensor; leave it out")
    if not chosen:
        raise _error(model, "there is no linear module to adapt; set policy.trained to full")
    return chosen


def linear_modules(model: nn.Module, target_modules: str | Sequence[str]) -> list[str]:
    """Return the full names of the linear modules that an adapter's `target_modules` means: names, or an expression."""
    if target_modules == ALL_LINEAR:
        return adapted_modules(model, ALL_LINEAR)
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if isinstance(target_modules, str):
        return [name for name in linear if re.fullmatch(target_modules, name)]
    return [name for name in linear if _matches(name, target_modules)]


def peft_names(model: nn.Module, targets: str | Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Return names for peft's `target_modules` that mean exactly `chosen`: short names if they do, else full names."""
    short = sorted({name.rpartition(".")[2] for name in chosen} if targets == ALL_LINEAR else set(targets))
    meant = [name for name, _ in model.named_modules() if _matches(name, short)]
    # For models whose experts once were modules, peft takes the modules' short names for the fused tensors, too.
    fused = any(weight.ndim == 3 and "expert" in name for name, weight in model.named_parameters())
    return sorted(chosen) if fused or sorted(meant) != sorted(chosen) else short


def require_adapted(policy: nn.Module, chosen: Iterable[str]) -> None:
    """Raise ValueError where peft adapted anything else than `chosen`."""
    adapted = {name.partition(".lora_A.")[0] for name, _ in policy.named_parameters() if ".lora_A." in name}
    expected = {f"base_model.model.{name}" for name in chosen}
    if adapted != expected:
        raise _error(policy, f"PEFT adapts {min(adapted ^ expected)} otherwise than asked; name other modules")


def _text_modules(model: Any) -> Iterator[tuple[str, nn.Module]]:
    """Yield the named modules of the text model and the head: all of them where there is no other tower."""
    if not hasattr(model, "get_decoder"):
        yield from model.named_modules()
        return
    text = {*model.get_decoder().modules(), model.get_output_embeddings()}
    yield from ((name, module) for name, module in model.named_modules() if module in text)


def _require_matches(model: nn.Module, targets: Sequence[str], linear: Sequence[str]) -> None:
    unmatched = [target for target in targets if not any(_matches(name, [target]) for name in linear)]
    if unmatched:
        names = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
        raise _error(
            model,
            f"{', '.join(unmatched)}: no linear module has this name; those that exist: {names} (or `all-linear`)",
        )


def _error(model: Any, reason: str) -> ValueError:
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    return ValueError(f"policy.lora.targets: {type(model).__name__}: {reason}")


def _matches(name: str, targets: Iterable[str]) -> bool:
    return any(name == target or name.endswith(f".{target}") for target in targets)


def _is_left_out(model: Any, name: str) -> bool:
    """Return whether `all-linear` leaves a module out, as in PEFT: the head, and modules that PEFT cannot adapt."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    mamba = getattr(getattr(model, "config", None), "model_type", None) in _MAMBA
    return model.get_submodule(name) is head or (mamba and name.endswith(".out_proj"))


def _taken_for_experts(model: nn.Module, names: Sequence[str]) -> set[str]:
    """Return those names for which PEFT would adapt fused experts, which it could not read back from a checkpoint.

    In earlier releases of transformers, experts were linear modules of these names.
    """
    from peft import LoraConfig
    from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers

    def is_taken(name: str) -> bool:
        config = LoraConfig(target_modules=[name])
        try:
            convert_peft_config_for_transformers(config, model, None)
        except ValueError:  # raised for one of several names that are fused into one
            return True
        return set(config.target_modules or ()) != {name}

    last = {name: name.rpartition(".")[2] for name in names}
    taken = {name for name in set(last.values()) if is_taken(name)}
    return {name for name in names if last[name] in taken}


def _shared_weights(model: nn.Module) -> dict[str, str]:
    """Return for each module that shares its weight another module with this weight."""
    owners: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(weight), []).append(name.rpartition(".")[0])
    return {name: (set(names) - {name}).pop() for names in owners.values() if len(set(names)) > 1 for name in names}
