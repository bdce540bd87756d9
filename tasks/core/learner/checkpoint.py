"""A learner on disk: the policy's weights, the optimizer's state, and the delivery probe.

The delivery probe is the record that proves which weights an engine serves. The learning rate depends only on the
number of optimizer steps, and every random stream is derived from the run's seed and the iteration's key. So this
number is the whole state of the scheduler and the generators.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from tasks.core.learner.critic import save_critic
from tasks.core.learner.distributed import ProcessGroup, full_tensor
from tasks.core.learner.learner import Learner
from tasks.core.policies.checkpoint_files import OPTIMIZER, policy_digest
from tasks.core.policies.delivery_probe import write_probe
from tasks.core.policies.loading import opened, read_tensor, save_policy, trained_tensors
from tasks.core.records.delivery_probe import DeliveryProbe
from tasks.core.records.files import ArtifactError, read_json, replacing, write_json

PROGRESS = "learner.json"
_MOMENTS = ("exp_avg", "exp_avg_sq")
_MASTER = "master"
"""Stored with the moments of a weight whose dtype is lower than float32."""


def save_learner(learner: Learner, folder: Path, probe: DeliveryProbe | None = None) -> None:
    """Write policy and optimizer atomically. Same state, same bytes, whatever the number of ranks.

    `probe`: the policy's record, to which this adds the weights' digest; None writes no record. All ranks call it
    (collective), because each holds a part of the weights; only the main rank writes.
    """
    weights = _gathered(trained_tensors(learner.policy).items(), learner.group)
    optimized = _gathered(_optimized(learner), learner.group)
    if not learner.group.is_main:
        return
    with replacing(folder) as temporary:
        save_policy(learner.policy, temporary, weights)
        save_file(optimized, temporary / OPTIMIZER, metadata={"format": "pt"})
        write_json(temporary / PROGRESS, {"optimizer_steps": learner.optimizer_steps})
        if learner.critic is not None:
            save_critic(learner.critic, temporary)
        if probe is not None:
            write_probe(temporary, probe.model_copy(update={"weights": policy_digest(temporary)}))


def restore_optimizer(learner: Learner, folder: Path) -> None:
    """Load the optimizer state of `folder` into `learner`, whose policy is loaded already.

    Without such state, do nothing.

    Raises ArtifactError when the state is damaged and ValueError, naming the tensor, when it does not fit the policy.
    """
    if not (folder / PROGRESS).exists():
        return
    path = folder / OPTIMIZER
    progress = read_json(folder / PROGRESS)
    if "optimizer_steps" not in progress:
        raise ArtifactError(f"{folder / PROGRESS}: no optimizer_steps, an earlier version wrote it; run `dvc repro`")
    optimizer_steps: int = progress["optimizer_steps"]
    with opened(path) as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        for name, weight in _trained(learner).items():
            master = learner.masters.get(weight)
            stepped, kinds = (weight, _MOMENTS) if master is None else (master, (*_MOMENTS, _MASTER))
            state = {"step": torch.tensor(float(optimizer_steps), device=weight.device)}
            for kind in kinds:
                tensor_name = f"{name}.{kind}"
                if shapes.get(tensor_name) != list(weight.shape):
                    raise ValueError(f"{path}: does not fit the policy: tensor {tensor_name}")
                state[kind] = read_tensor(file, tensor_name, stepped)
            if master is not None:
                with torch.no_grad():
                    master.copy_(state.pop(_MASTER))
            learner.optimizer.state[stepped] = state
    learner.optimizer_steps = optimizer_steps


def _optimized(learner: Learner) -> Iterator[tuple[str, Tensor]]:
    """Yield moments and masters. A weight that was never stepped gets zeros, as AdamW itself would start from."""
    for name, weight in _trained(learner).items():
        stepped = learner.masters.get(weight, weight)
        state = learner.optimizer.state[stepped]
        for moment in _MOMENTS:
            yield f"{name}.{moment}", state.get(moment, torch.zeros_like(stepped))
        if stepped is not weight:
            yield f"{name}.{_MASTER}", stepped


def _gathered(tensors: Iterable[tuple[str, Tensor]], group: ProcessGroup) -> dict[str, Tensor]:
    """Gather each tensor whole in the main rank's memory; the other ranks keep none (collective)."""
    whole = {}
    for name, tensor in tensors:
        entire = full_tensor(tensor)
        if group.is_main:
            whole[name] = entire.cpu().contiguous()
    return whole


def _trained(learner: Learner) -> dict[str, torch.nn.Parameter]:
    return {name: weight for name, weight in learner.policy.named_parameters() if weight.requires_grad}
