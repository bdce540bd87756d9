"""Supervised training on demonstrations: cross-entropy on exactly the tokens that the policy would have sampled."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from tasks.core.config.section import Section
from tasks.core.interfaces.world import Message
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.head import body_of, logits_of
from tasks.core.policies.pass_threads import add_gradients
from tasks.core.processes.shown_work import shown_work

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_IGNORED = -100
T = TypeVar("T")


@dataclass(frozen=True)
class Example:
    """One demonstrated episode as the agent loop would have recorded it."""

    token_ids: tuple[int, ...]
    policy_mask: tuple[bool, ...]
    """True for the tokens of the assistant's turns, stop tokens included."""


@dataclass(frozen=True)
class Phase:
    """A stretch of training on one kind of examples."""

    name: str
    examples: Callable[[Random], Iterator[Example]]
    """Draws the phase's examples, without end; see `in_random_order`."""
    steps: int
    learning_rate: float
    """Rate at the phase's start; it falls linearly to a tenth."""


class SupervisedSettings(Section):
    """Settings of AdamW and batching."""

    tokens_per_step: int = 4096
    tokens_per_forward: int = 4096
    """Positions of one padded forward pass."""
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    warmup_steps: int = 30
    bfloat16_products: bool = False
    """Whether to multiply matrices in bfloat16 (autocast); weights and optimizer stay float32."""


def encode_example(chat: ChatFormat, opening: Sequence[Message], turns: Sequence[tuple[str, str]]) -> Example:
    """Encode an episode as a token stream: `turns` holds each assistant text and the observation that followed it.

    The last observation is left out, as in the agent loop.
    """
    token_ids = chat.prompt_ids(opening)
    mask = [False] * len(token_ids)
    for index, (text, observation) in enumerate(turns):
        sampled = chat.turn_ids(text)
        answer = chat.continuation_ids(observation, closed=True) if index < len(turns) - 1 else []
        token_ids += sampled + answer
        mask += [True] * len(sampled) + [False] * len(answer)
    return Example(tuple(token_ids), tuple(mask))


def encode_conversation(chat: ChatFormat, messages: Sequence[Message], opening: int) -> Example:
    """Encode an episode given as messages, of which the first `opening` stand before the first demonstrated turn."""
    texts = [message["content"] for message in messages[opening:]] + [""]
    return encode_example(chat, messages[:opening], list(zip(texts[::2], texts[1::2], strict=False)))


def train(model: "PreTrainedModel", phases: Sequence[Phase], settings: SupervisedSettings, seed: int) -> list[float]:
    """Train all parameters of `model` in place and return the loss of every step (nats per policy token).

    On a CPU the passes of a step run on all cores in parallel, with the bits of one core.
    """
    optimizer = torch.optim.AdamW(model.parameters(), betas=settings.betas, weight_decay=settings.weight_decay)
    losses: list[float] = []
    model.train()
    with shown_work("supervised training", sum(phase.steps for phase in phases), "step", leave=True) as work:
        for phase in phases:
            examples = phase.examples(Random(f"{seed} {phase.name}"))
            for step in range(phase.steps):
                rate = phase.learning_rate * (1 - 0.9 * step / phase.steps)
                rate *= min(1.0, (len(losses) + 1) / settings.warmup_steps)
                losses.append(_step(model, optimizer, step_batch(examples, settings.tokens_per_step), rate, settings))
                work.advance(note=f"{phase.name}, loss {losses[-1]:.3f}")
    model.train(False)
    return losses


def in_random_order(examples: Sequence[T]) -> Callable[[Random], Iterator[T]]:
    """Return an endless stream: every example once, in random order, then again in another.

    Raises ValueError for no examples.
    """
    if not examples:
        raise ValueError("no examples to train on")

    def stream(random: Random) -> Iterator[T]:
        while True:
            yield from random.sample(examples, len(examples))

    return stream


def step_batch(examples: Iterator[Example], tokens: int) -> list[Example]:
    """Return the next examples of a stream, of at least `tokens` tokens together."""
    batch: list[Example] = []
    while sum(len(example.token_ids) for example in batch) < tokens:
        batch.append(next(examples))
    return batch


def padded(batch: Sequence[Example], tokens_per_forward: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield right-padded (ids, targets), int64 [B, L], of examples sorted by length, with B * L <= tokens_per_forward.

    targets[b, t] is the id that the model must predict at position t, or -100 where it is not the policy's. No
    attention mask is needed: attention is causal and padding comes last.
    """
    rows: list[Example] = []
    for example in sorted(batch, key=lambda example: len(example.token_ids)):
        if rows and (len(rows) + 1) * len(example.token_ids) > tokens_per_forward:
            yield _stack(rows)
            rows = []
        rows.append(example)
    yield _stack(rows)


def _stack(rows: Sequence[Example]) -> tuple[Tensor, Tensor]:
    shape = (len(rows), max(len(row.token_ids) for row in rows))
    ids, targets = torch.zeros(shape, dtype=torch.long), torch.full(shape, _IGNORED)
    for index, row in enumerate(rows):
        ids_of_row, mask = torch.tensor(row.token_ids), torch.tensor(row.policy_mask)
        ids[index, : len(ids_of_row)] = ids_of_row
        targets[index, : len(ids_of_row) - 1] = torch.where(mask[1:], ids_of_row[1:], _IGNORED)
    return ids, targets


def _step(
    model: "PreTrainedModel",
    optimizer: torch.optim.Optimizer,
    batch: Sequence[Example],
    learning_rate: float,
    settings: SupervisedSettings,
) -> float:
    policy_tokens = sum(sum(example.policy_mask) for example in batch)

    def loss_of(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        ids, targets = (part.to(model.device) for part in rows)
        half = settings.bfloat16_products
        # With a cache, the threads would share cast weights, and the graph behind them.
        with torch.autocast(model.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
            loss = _summed_loss(model, ids, targets) / policy_tokens
        return loss, loss.detach()

    losses = add_gradients(loss_of, list(padded(batch, settings.tokens_per_forward)), list(model.parameters()))
    torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return sum(loss.item() for loss in losses)


def _summed_loss(model: "PreTrainedModel", ids: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the cross-entropies in nats; the head sees only the positions that have a target."""
    hidden: Tensor = body_of(model)(input_ids=ids, use_cache=False)[0]
    chosen = targets != _IGNORED
    logits = logits_of(model, hidden[chosen])
    return torch.nn.functional.cross_entropy(logits, targets[chosen], reduction="sum")
