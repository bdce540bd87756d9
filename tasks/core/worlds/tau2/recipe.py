"""The embedded policy of τ²-bench: demonstrations on tasks that no test holds, in the package's own environment.

Of its tokens every call, and every part of an answer that varies, is one."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tqdm import tqdm

from tasks.core.interfaces.world import Message
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.policies.recipe import Recipe, train_policy
from tasks.core.policies.supervised import SupervisedSettings
from tasks.core.worlds.tau2.demonstrations.playing import play_demonstrations
from tasks.core.worlds.tau2.kind import TAU2, Tau2Config
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.tasks import parted
from tasks.core.worlds.tau2.world import Tau2World

_PARTS = re.compile(r"[^\n,|.:]+(?:\n|, |\| |\. |: |[,|.:])?|.", re.DOTALL)
_ROLES = ("system\n", "user\n", "assistant\n")


def pieces(conversations: Sequence[Sequence[Message]]) -> list[str]:
    """Return the pieces of the tokenizer: whole turns of the agent, and phrases of what it reads.

    A text is cut after every sign. Two neighbours are one phrase where neither ever stands without the other,
    so that what all answers of a tool share takes as few tokens as it can, and what differs is a token of its own.
    """
    calls = {message["content"] for messages in conversations for message in messages if message["role"] == "assistant"}
    read = {message["content"] for messages in conversations for message in messages if message["role"] != "assistant"}
    return sorted({*_ROLES, *calls, *_phrases([_PARTS.findall(text) for text in sorted(read)])})


def _phrases(texts: list[list[str]]) -> set[str]:
    """Join inseparable neighbours until there are none."""
    while True:
        counts = Counter(part for text in texts for part in text)
        pairs = Counter(pair for text in texts for pair in pairwise(text))
        joined = {pair for pair, count in pairs.items() if count == counts[pair[0]] == counts[pair[1]]}
        if not joined:
            return {part for text in texts for part in text}
        texts = [_join(text, joined) for text in texts]


def _join(text: Iterable[str], pairs: set[tuple[str, str]]) -> list[str]:
    parts: list[str] = []
    last = ""
    for part in text:
        if parts and (last, part) in pairs:
            parts[-1] += part
        else:
            parts.append(part)
        last = part
    return parts


if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

WORLD_SEED = 2502
"""The seed of the profile's world, whose dev and test_challenge are held back from the demonstrations."""


class Tau2Recipe(Recipe):
    """The settings of its policy."""

    def make(self) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
        """Play demonstrations, train. Raises InterpreterUnavailable and WorldFault."""
        config = Tau2Config(train="full", prompt="ticket")
        pool = Tau2Pool(python_executable(INTERPRETERS, TAU2))
        world = Tau2World(parted(*pool.tasks(), config.train, WORLD_SEED), pool, config)
        try:
            perfect, imperfect = (
                [
                    played.messages
                    for played in tqdm(
                        play_demonstrations(world, self.seed, count, imperfect=bad), total=count, unit="episode"
                    )
                    if played.success or not (bad and self.successes_alone)
                ]
                for bad, count in ((False, self.perfect_demonstrations), (True, self.imperfect_demonstrations))
            )
        finally:
            world.close()
        return train_policy(self, pieces([*perfect, *imperfect]), perfect, imperfect)


RECIPE = Tau2Recipe(
    supervised=SupervisedSettings(tokens_per_step=2048, tokens_per_forward=1024),
    perfect_demonstrations=1_200,
    imperfect_demonstrations=1_200,
    perfect_steps=200,
    imperfect_steps=150,
    learning_rate=3e-3,
)
