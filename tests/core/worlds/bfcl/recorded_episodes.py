"""Episodes of a policy that knows the solutions and errs, each in its own way, and how any turns are played."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.core.interfaces.world import Evaluation, Message, Observation
from tasks.core.worlds.bfcl.world import BfclWorld

CALM_SHARE = 0.85
"""Share of the turns that are as in the solution."""


@dataclass(frozen=True)
class Played:
    """One episode."""

    said: list[str]
    """The turns until the end."""
    seen: list[Observation]
    messages: list[Message]
    """The conversation, without the observation that ends it."""
    verdict: Evaluation


def play(world: BfclWorld, task_id: str, turns: Sequence[str]) -> Played:
    """Play until the turns or the episode are over."""
    episode = world.open(task_id, 0)
    messages, seen = list(episode.prompt), []
    for text in turns:
        seen.append(episode.step(text))
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": seen[-1].text}]
        if seen[-1].done:
            break
    verdict = episode.evaluate()
    episode.close()
    told = seen[-1].done and seen[-1].code_blocks == 0  # the package says nothing after the last turn of the user
    return Played(list(turns[: len(seen)]), seen, messages[:-1] if told else messages, verdict)


def erring(turns: Sequence[str], generator: random.Random) -> list[str]:
    """The turns, some of them changed, and enough of others that any episode ends."""
    changed = [text for turn in turns for text in _erring_turn(turn, generator)]
    return [*changed, *["I am done."] * 9]


def _erring_turn(turn: str, generator: random.Random) -> list[str]:
    if generator.random() < CALM_SHARE:
        return [turn]
    return generator.choice(_ERRORS)(turn)


_ERRORS: tuple[Callable[[str], list[str]], ...] = (
    lambda turn: [],
    lambda turn: [turn, turn],
    lambda turn: [turn] * 23,
    lambda turn: [turn[:-1]],
    lambda turn: [f"```\n{turn}\n```"],
    lambda turn: [f"I will call {turn}"],
    lambda turn: [turn.replace("=", " = ").replace("(", " (")],
    lambda turn: [re.sub(r"\w+=", "", turn)],
    lambda turn: [re.sub(r"\d", "7", turn)],
    lambda turn: [turn.replace("'", '"')],
    lambda turn: [turn.replace("True", "true").replace("[]", "None")],
    lambda turn: ["[]", turn],
    lambda turn: ["[nothing_of_that_name(a=1)]", turn],
    lambda turn: ["[ls(), pwd(), get_watchlist(), displayCarStatus(option='fuel'), list_all_airports()]", turn],
    lambda turn: ["[echo(content='call mean (1, 2) and cd(3)', file_name='odd.txt')]", turn],
    lambda turn: ["[mkdir(dir_name='intruder')]", turn],
    lambda turn: ["[sort(file_name=pwd()), post_tweet(content=echo(content='a'), tags=['#a' + 'b'], mentions=(1,))]"],
    lambda turn: ["[ls(a=-1.5e3, b={'k': [None, {1, 2}]}, c=b'x', d=..., e=name, f=x[1], g=1j)]", turn],
    lambda turn: ["[power(base=2.0, exponent=0.5), mean(numbers=[]), divide(a=1, b=0)]", turn],
)
