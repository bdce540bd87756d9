"""A critic on disk, beside the policy that it judges: weights and moments in one file, counts in another."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from tasks.core.learner.critic.critic import Critic
from tasks.core.policies.loading import opened, read_tensor
from tasks.core.records.files import ArtifactError, read_json, write_json

TENSORS, COUNTS = "critic.safetensors", "critic.json"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def save_critic(critic: Critic, folder: Path) -> None:
    """Write it into a checkpoint's folder. Same state, same bytes."""
    tensors = {}
    for name, weight in critic.head.named_parameters():
        state = critic.optimizer.state[weight]
        tensors[name] = weight.detach()
        for moment in _MOMENTS:
            tensors[f"{name}.{moment}"] = state.get(moment, torch.zeros_like(weight))
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(whole, folder / TENSORS, metadata={"format": "pt"})
    write_json(folder / COUNTS, {"updates": critic.updates, "optimizer_steps": critic.optimizer_steps})


def restore_critic(critic: Critic, folder: Path) -> None:
    """Give `critic` the state of `folder`; a folder that has none leaves it untrained.

    Raises ArtifactError when the files are damaged and ValueError, naming the tensor, when they do not fit the policy.
    """
    if not (folder / COUNTS).exists():
        return
    path, counts = folder / TENSORS, read_json(folder / COUNTS)
    if not {"updates", "optimizer_steps"} <= counts.keys():
        raise ArtifactError(f"{folder / COUNTS}: no updates or no optimizer_steps; run `dvc repro`")
    with opened(path) as file:
        found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        for name, weight in critic.head.named_parameters():
            state = {"step": torch.tensor(float(counts["optimizer_steps"]), device=weight.device)}
            for place in (name, *(f"{name}.{moment}" for moment in _MOMENTS)):
                if found.get(place) != list(weight.shape):
                    raise ValueError(
                        f"{path}: the critic does not fit the policy: tensor {place} is {found.get(place)}, "
                        f"not {list(weight.shape)}; another base model made it"
                    )
                state[place.removeprefix(f"{name}.")] = read_tensor(file, place, weight)
            with torch.no_grad():
                weight.copy_(state.pop(name))
            critic.optimizer.state[weight] = state
    critic.updates, critic.optimizer_steps = counts["updates"], counts["optimizer_steps"]
