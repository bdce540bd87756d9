"""The engine's promise, tried on this machine: a conversation's bits do not depend on the other conversations.

A library may choose its kernels by more than we know of: the processor, the number of rows, a model's odd widths. So
a conversation is played alone, and then among others, with its prompt's beginning from another one's cache.
"""

import logging
from collections.abc import Callable, Sequence

import numpy as np

from tasks.core.engines.transformers.tiles import FREE, LADDER, Tiles
from tasks.core.interfaces.engine import Engine, Generation, GenerationRequest, SamplingSettings

_log = logging.getLogger(__name__)
_OPERATIONS = 1e9
"""Floating-point operations that reading the longest prompt may take."""
_LENGTHS = (24, 560)
"""Ids of the longest prompt: for a large model, and for a small one. The kernel reads blocks of 512 positions."""
_TOKENS, _OBSERVED, _OTHERS = 4, 9, 18
_NAME = "conversation"
_FOUND: dict[str, Tiles] = {}


class Trial:
    """A conversation of two turns, played by an engine whose tiles are to be tried."""

    def __init__(self, engine: Engine, parameters: int, vocabulary: int) -> None:
        length = int(np.clip(_OPERATIONS / (2 * parameters), *_LENGTHS))
        length = max(2, min(length, engine.context_length - 3 * (_TOKENS + _OBSERVED)))
        numbers = np.random.Generator(np.random.Philox(key=1))
        self._engine = engine
        self._prompt, self._observation = (
            numbers.integers(vocabulary, size=size).tolist() for size in (length, _OBSERVED)
        )
        others = numbers.integers(vocabulary, size=(_OTHERS, length + _OBSERVED)).tolist()
        shares = np.linspace(0, 1, _OTHERS) ** 8  # most are short, one is longer than the conversation itself
        self._others = [ids[: 1 + int(share * (len(ids) - 1))] for ids, share in zip(others, shares, strict=True)]

    def holds(self) -> bool:
        """Return whether the conversation has the same ids and log-probs alone and among others."""
        alone = self._play([])
        return alone == self._play([self._prompt[: len(self._prompt) // 2 + 1], *self._others])

    def _play(self, others: Sequence[list[int]]) -> list[Generation]:
        first = self._turn(self._prompt, others)
        ids = [*self._prompt, *first.token_ids, *self._observation]
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


def first_that_holds(use: Callable[[Tiles], None], trial: Callable[[], Trial], model: str) -> Tiles:
    """Return the first tiles of the ladder with which the trial holds, after `use`. Without any, say so; return FREE.

    Tries each `model` (its shapes, in words) once per process.
    """
    if model not in _FOUND:
        _FOUND[model] = _tried(use, trial())
    return _FOUND[model]


def _tried(use: Callable[[Tiles], None], trial: Trial) -> Tiles:
    for tiles in LADDER:
        use(tiles)
        if trial.holds():
            return tiles
    _log.warning(
        "engine: on this machine a conversation's last bits depend on the others in its batch: the same bytes are not "
        "promised for another number of shards or max_concurrent_episodes"
    )
    return FREE
