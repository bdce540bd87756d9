"""The engine's promise, tried on this machine: a conversation's bits do not depend on the other conversations.

A library may choose its kernels by more than we know of: the processor, the number of rows, a model's odd widths. So
the model's matrix products are tried with few rows and with many, its attention with few keys and with many, its
activation at the end of a pass and within, and two conversations are played alone, and then among others, with their
prompt's beginning from another one's cache. On an Intel
Xeon with AMX, MKL sums the attention of grouped heads otherwise from 448 keys on, and oneDNN products in bfloat16 from
48 rows on; on an AMD EPYC neither.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from tasks.core.engines.transformers.decode_attention import FREE, LADDER, Tiles, attend, takes_products
from tasks.core.interfaces.engine import Engine, Generation, GenerationRequest, SamplingSettings
from tasks.core.policies.pass_threads import one_thread

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_log = logging.getLogger(__name__)
_OPERATIONS = 1e9
"""Floating-point operations that reading the longest prompt may take."""
_LENGTHS = (24, 560)
"""Ids of the longest prompt: for a large model, and for a small one. The kernel reads blocks of 512 positions."""
_TOKENS, _OBSERVED, _OTHERS = 4, 9, 18
_NAME = "conversation"
_TILES = (*range(1, 17), 24, 32, 64, 128, 256)
"""Numbers of tiles that products and attention are tried with, as far as they stay within the next two limits."""
_PRODUCT_OPERATIONS, _MOST_KEYS = 2e9, 2048
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Names of the number of experts in config.json."""
_FOUND: dict[str, Tiles] = {}


class Trial:
    """A model's kernels and a conversation of two turns, tried by an engine whose tiles are to be chosen."""

    def __init__(self, engine: Engine, model: "PreTrainedModel", vocabulary: int) -> None:
        self._model = model
        length = int(np.clip(_OPERATIONS / (2 * model.num_parameters()), *_LENGTHS))
        length = max(2, min(length, engine.context_length - 3 * (_TOKENS + _OBSERVED)))
        numbers = np.random.Generator(np.random.Philox(key=1))
        self._engine = engine
        self._prompt, self._observation = (
            numbers.integers(vocabulary, size=size).tolist() for size in (length, _OBSERVED)
        )
        others = numbers.integers(vocabulary, size=(_OTHERS, length + _OBSERVED)).tolist()
        shares = np.linspace(0, 1, _OTHERS) ** 8  # most are short, one is longer than the conversation itself
        self._others = [ids[: 1 + int(share * (len(ids) - 1))] for ids, share in zip(others, shares, strict=True)]

    @property
    def mixes_experts(self) -> bool:
        """Whether each id goes through some experts: how many rows one of them has depends on the batch."""
        config = self._model.config.get_text_config()
        return any((getattr(config, name, None) or 0) > 1 for name in _EXPERTS)

    def holds(self, tiles: Tiles) -> bool:
        """Return whether the kernels keep their bits with `tiles`, and the conversation its ids and log-probs."""
        with one_thread(self._model.device), torch.inference_mode():
            kernels = all(hold(self._model, tiles) for hold in (products_hold, activations_hold, attention_holds))
        # Of a short one, each id counts; but for the last, which is sampled from, they fill a tile to its last row.
        short = self._prompt[: tiles.rows + 1]
        return kernels and self._same_in_company(short, []) and self._same_in_company(self._prompt, self._others)

    def _same_in_company(self, prompt: list[int], others: Sequence[list[int]]) -> bool:
        return self._play(prompt, []) == self._play(prompt, [prompt[: len(prompt) // 2 + 2], *others])

    def _play(self, prompt: list[int], others: Sequence[list[int]]) -> list[Generation]:
        first = self._turn(prompt, others)
        ids = [*prompt, *first.token_ids, *self._observation]
        turns = [first, self._turn(ids, [])]
        for name in (_NAME, *map(str, range(len(others)))):
            self._engine.release(name)
        return turns

    def _turn(self, prompt: list[int], others: Sequence[list[int]]) -> Generation:
        for number, ids in enumerate(others):
            self._engine.submit(_request(str(number), ids))
        begun = self._engine.collect() if others else []  # the prompt comes while others are being sampled
        self._engine.submit(_request(_NAME, prompt))
        done = {generation.sequence_id: generation for generation in begun}
        while generations := self._engine.collect():
            done.update({generation.sequence_id: generation for generation in generations})
        return done[_NAME]


def _request(name: str, ids: list[int]) -> GenerationRequest:
    tokens = _TOKENS if name == _NAME else 1 + int(name) % _TOKENS
    return GenerationRequest(name, ids, SamplingSettings(1.0, tokens, ()), seed=7)


def products_hold(model: nn.Module, tiles: Tiles) -> bool:
    """Return whether rows of a product with each of the model's matrices have the same bits among more rows."""
    linear = (module for module in model.modules() if isinstance(module, nn.Linear))
    shapes = {(module.weight.shape, module.bias is None): module for module in linear}
    for module in shapes.values():
        each = 2 * module.weight.numel() * tiles.rows
        rows = [tiles.rows * count for count in _TILES if each * count <= _PRODUCT_OPERATIONS]
        inputs = _drawn(max(rows, default=tiles.rows), 1, module.in_features).to(module.weight)
        few = module(inputs[: tiles.rows])
        if not all(torch.equal(module(inputs[:count])[: tiles.rows], few) for count in rows):
            return False
    return True


def activations_hold(model: "PreTrainedModel", tiles: Tiles) -> bool:
    """Return whether the activation of a row has the same bits at the end of a pass as within.

    What is left over from whole vectors is computed by itself: the last row's end, where the model's width is odd.
    """
    from transformers.activations import ACT2FN

    config = model.config.get_text_config()
    name, width = getattr(config, "hidden_act", None), getattr(config, "intermediate_size", None)
    if name not in ACT2FN or not isinstance(width, int):
        return True
    act, inputs = ACT2FN[name], _drawn(8, tiles.rows, 1, width).to(next(model.parameters()))
    return all(torch.equal(act(rows.roll(1, 0)).roll(-1, 0), act(rows)) for rows in inputs)


def attention_holds(model: "PreTrainedModel", tiles: Tiles) -> bool:
    """Return whether a query's attention, in heads as the model's, has the same bits among more keys and queries.

    In float32, as it is computed in lower precision, too: there rounding hides most differences, not all.
    """
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    shared = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    lengths = [tiles.keys * count for count in _TILES if tiles.keys * count <= _MOST_KEYS]
    queries = _drawn(3, heads, 1, width)
    keys, values = _drawn(3, shared, lengths[-1], width), _drawn(3, shared, lengths[-1], width)

    def attended(rows: int, length: int, seen: int) -> Tensor:
        mask = queries.new_zeros(rows, 1, 1, length)
        mask[..., seen:] = torch.finfo(mask.dtype).min
        key, value = (part[:rows, :, :length] for part in (keys, values))
        return attend(queries[:rows], key, value, mask, None, tiles, takes_products(next(model.parameters())))[0]

    return all(
        torch.equal(attended(rows, length, shortest - 1), attended(1, shortest, shortest - 1))
        for shortest in lengths[:: len(lengths) // 4]
        for length in lengths[lengths.index(shortest) :]
        for rows in (1, 3)
    )


def _drawn(*size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(1))


def first_that_holds(use: Callable[[Tiles], None], trial: Callable[[], Trial], model: str) -> Tiles:
    """Return the first tiles of the ladder with which the trial holds, after `use`. Without any, say so; return FREE.

    Tries each `model` (its shapes, in words) once per process.
    """
    if model in _FOUND:
        return _FOUND[model]
    tried = trial()
    for tiles in LADDER:
        use(tiles)
        if tried.holds(tiles):
            _FOUND[model] = tiles
            return tiles
    _log.warning(
        "engine: %s a conversation's last bits depend on the others in its batch: the same bytes are not promised for "
        "another number of shards or max_concurrent_episodes",
        "on any machine, in a mixture of experts," if tried.mixes_experts else "on this machine",
    )
    _FOUND[model] = FREE
    return FREE
