"""Scripted play of games for base policies: perfect play teaches the skill, imperfect play the bad habits.

Every demonstration is really played, on a fresh task; half of them with a thinking part, half without. A thought names
the cells of things on the map, so that a tiny policy plans from what it has read off the rows
(data/base_policies/README.md says what that changes).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from tasks.core.interfaces.world import Message
from tasks.core.seeding import derive_seed
from tasks.core.text_games.episode import GameEpisode
from tasks.core.text_games.prompt import answer_text
from tasks.core.text_games.settings import TurnRules

_LONGEST_SIDE = 8
PLACES = tuple(f"{row},{column}" for row in range(_LONGEST_SIDE) for column in range(_LONGEST_SIDE))
"""Row and column, from 0, of maps of up to 8 x 8."""


def places_text(state: str, marks: Mapping[str, str]) -> str:
    """Return each name with the first cell that shows one of its symbols: "I am at 1,2, the goal at 3,3. ".

    Raises ValueError for a map that shows none of them.
    """
    return ", ".join(f"{name} at {place(state, cell_of(state, symbols))}" for name, symbols in marks.items()) + ". "


def places_vocabulary(marks: Mapping[str, str]) -> tuple[str, ...]:
    """Return the vocabulary of `places_text`, one token each."""
    return (*PLACES, *(f"{name} at " for name in marks), ". I choose ")


def place(state: str, cell: int) -> str:
    """Return row and column of the symbol at `cell` of a map's text."""
    row, column = state.count("\n", 0, cell), cell - state.rfind("\n", 0, cell) - 1
    return f"{row},{column}"


def cell_of(state: str, symbols: str) -> int:
    """Return the index of the first of `symbols` in a map's text. Raises ValueError if there is none."""
    for cell, symbol in enumerate(state):
        if symbol in symbols:
            return cell
    raise ValueError(f"a map without any of {symbols}")


@dataclass(frozen=True)
class Habits:
    """Probabilities of bad habits, each drawn independently. All zero: perfect play."""

    wrong_action: float = 0.25
    """Probability that an action is replaced by another action of the game."""
    unknown_action: float = 0.08
    """Probability that one action of a turn does not exist in the game."""
    no_answer: float = 0.08
    """Probability that a turn is the plan without its tags."""
    single_action: float = 0.6
    """Probability that a turn has one action where several are allowed: turns run out before the goal is reached.

    High enough to remain a habit at RAGEN's temperature of 0.5, where rare habits hardly show.
    """


PERFECT, IMPERFECT = Habits(0, 0, 0, 0), Habits()
UNKNOWN_ACTION = "Wait"


class Teacher(Protocol):
    """The functions of a world that demonstrations need."""

    kind: Any
    """The world's `GameKind`."""
    turns: Any
    """The world's section of params.yaml, a `TurnRules`."""
    vocabulary: Sequence[str]
    """Words and phrases of its states, one token each; empty if states are maps or names."""

    def task(self, random: Random) -> Any:
        """Return a fresh task like those of train."""
        ...

    def advice(self, task: Any, state: str) -> Sequence[str]:
        """Return the actions of a good player from here on; empty if nothing helps any more."""
        ...

    def actions(self, task: Any, state: str) -> Sequence[str]:
        """Return all actions that are possible here."""
        ...

    def reading(self, task: Any, state: str) -> str:
        """Return the beginning of a thought, read off the state, before the plan; may be empty."""
        ...

    def names(self, task: Any) -> Sequence[str]:
        """Return the names that a tokenizer takes as one token wherever they occur."""
        ...


def demonstrations(
    teacher: Teacher, seed: int, count: int, *, imperfect: bool, successes_alone: bool = False
) -> Iterator[list[Message]]:
    """Yield `count` conversations: system, user, then assistant and user in turn, ending with an assistant message.

    With `successes_alone` those that lose their game are left out.
    """
    for number in range(count):
        random = Random(derive_seed(seed, "game demonstration", "imperfect" if imperfect else "perfect", number))
        rules = teacher.turns.model_copy(update={"thinking": number % 2 == 0})
        messages, solved = _play(teacher, rules, IMPERFECT if imperfect else PERFECT, random)
        if solved or not successes_alone:
            yield messages


def _play(teacher: Teacher, rules: TurnRules, habits: Habits, random: Random) -> tuple[list[Message], bool]:
    task = teacher.task(random)
    game = teacher.kind.start(task, random.getrandbits(62))
    episode = GameEpisode(game, teacher.kind.briefing(task), teacher.kind.rules, rules)
    messages: list[Message] = list(episode.prompt)
    while True:
        text = _turn(teacher, task, game.state, rules, habits, random)
        seen = episode.step(text)
        messages.append({"role": "assistant", "content": text})
        if seen.done:
            return messages, episode.evaluate().success
        messages.append({"role": "user", "content": seen.text + seen.ending})


def _turn(teacher: Teacher, task: Any, state: str, rules: TurnRules, habits: Habits, random: Random) -> str:
    known = teacher.actions(task, state)
    plan = list(teacher.advice(task, state)) or [random.choice(known)]
    plan = plan[: 1 if _is_single(rules, habits, random) else random.randint(1, rules.max_actions_per_turn)]
    plan = [random.choice(known) if random.random() < habits.wrong_action else action for action in plan]
    if random.random() < habits.no_answer:
        return ", ".join(plan)
    if random.random() < habits.unknown_action:
        plan[random.randrange(len(plan))] = UNKNOWN_ACTION
    return answer_text(plan, teacher.reading(task, state) + thought_of(plan) if rules.thinking else None)


def _is_single(rules: TurnRules, habits: Habits, random: Random) -> bool:
    return rules.max_actions_per_turn > 1 and random.random() < habits.single_action


def thought_of(plan: Sequence[str]) -> str:
    """Return the end of a demonstrated thought."""
    return f"I choose {' and '.join(plan)}."
