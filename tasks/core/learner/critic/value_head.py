"""The critic's network: a small MLP on the policy's last hidden states, which it does not train."""

import torch
from torch import Tensor, nn

from tasks.core.capacity.flops import value_head_widths


class ValueHead(nn.Module):
    """states [P, d] -> values [P] float32; three linear layers with ReLU between (LOOP, PPO baseline)."""

    def __init__(self, hidden_size: int, seed: int) -> None:
        """`seed` decides the initial weights and nothing else does."""
        super().__init__()
        wide, narrow = value_head_widths(hidden_size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.Sequential(
                nn.Linear(hidden_size, wide), nn.ReLU(), nn.Linear(wide, narrow), nn.ReLU(), nn.Linear(narrow, 1)
            )

    def forward(self, states: Tensor) -> Tensor:
        """Compute in float32, whatever the states' dtype. No gradient reaches the states."""
        values: Tensor = self.layers(states.detach().float())[:, 0]
        return values
