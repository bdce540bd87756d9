"""Activations of one decoder layer at a time: the others keep only their input and are computed again when needed."""

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from tasks.core.learner.model.decoder import decoder_layers


def checkpoint_activations(policy: nn.Module) -> None:
    """Make each decoder layer forget what it computed until its backward pass. Idempotent.

    transformers' own switch acts in training mode only, and the policy stays in evaluation mode so that the first
    importance weights are 1. On a sharded policy the layer is gathered again before it is computed again.
    """
    for layer in decoder_layers(policy):
        if "forward" not in layer.__dict__:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)  # type: ignore[method-assign]
