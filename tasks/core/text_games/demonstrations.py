"""Scripted play of games for base policies: perfect play teaches the skill, imperfect play the bad habits.

Every demonstration is really played, on a fresh task; half of them with a thinking part, half without. A thought names
the cells of things on the map, so that a tiny policy plans from what it has read off the rows
(data/base_policies/README.md says what that changes).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tasks.core.interfaces.world import Message
from tasks.core.policies.recipe import Recipe, train_policy
from tasks.core.policies.supervised import SupervisedSettings
from tasks.core.seeding import derive_seed
from tasks.core.text_games.episode import SYSTEM_PROMPT, GameEpisode, answer_text, opening, reminder, turn_text
from tasks.core.text_games.settings import TurnRules

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

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


class Teacher:
    """A good player of a world's games; a subclass knows the game."""

    kind: Any
    """The world's `GameKind`."""
    turns: Any
    """The world's section of params.yaml, a `TurnRules`."""
    vocabulary: Sequence[str] = ()
    """Words and phrases of its states, one token each; empty if states are maps or names."""

    def task(self, random: Random) -> Any:
        """Return a fresh task like those of train."""
        raise NotImplementedError

    def advice(self, task: Any, state: str) -> Sequence[str]:
        """Return the actions of a good player from here on; empty if nothing helps any more."""
        raise NotImplementedError

    def actions(self, task: Any, state: str) -> Sequence[str]:
        """Return all actions that are possible here."""
        raise NotImplementedError

    def reading(self, task: Any, state: str) -> str:
        """Return the beginning of a thought, read off the state, before the plan."""
        return ""

    def names(self, task: Any) -> Sequence[str]:
        """Return the names that a tokenizer takes as one token wherever they occur: actions that never change."""
        return self.actions(task, "")


FRESH: Mapping[str, Any] = {"task_id": "", "scenario_id": "", "difficulty": 1, "split": "train"}
"""Fields that all of a teacher's tasks have in common."""


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
    single = rules.max_actions_per_turn > 1 and random.random() < habits.single_action
    plan = plan[: 1 if single else random.randint(1, rules.max_actions_per_turn)]
    plan = [random.choice(known) if random.random() < habits.wrong_action else action for action in plan]
    if random.random() < habits.no_answer:
        return ", ".join(plan)
    if random.random() < habits.unknown_action:
        plan[random.randrange(len(plan))] = UNKNOWN_ACTION
    thought = f"{teacher.reading(task, state)}I choose {' and '.join(plan)}."
    return answer_text(plan, thought if rules.thinking else None)


_STATE = "\x00"
_FIXED = (
    *("system\n", "user\n", "assistant\n", SYSTEM_PROMPT, "Reward:\n", "\n\nTurn ", "You have ", "-0.", "√"),
    *(UNKNOWN_ACTION, "<think>", "<answer>", "</answer>", " || ", ", ", "I choose ", " and ", ".</think><answer>"),
)
_DRAWN = 100


def phrases(teacher: Teacher) -> list[str]:
    """Return the game's vocabulary, its texts (split at states, numbers and names) and the names; sorted."""
    random, parts = Random(0), {*_FIXED, *teacher.vocabulary}
    for number in range(_DRAWN):
        rules = teacher.turns.model_copy(update={"thinking": number % 2 == 0})
        task = teacher.task(random)
        names = teacher.names(task)
        briefing = teacher.kind.briefing(task)
        texts = [message["content"] for message in opening(briefing, _STATE, rules)]
        texts += [turn_text(1, _STATE), "\n" + reminder(rules, 1), teacher.kind.start(task, 0).state.partition(":")[0]]
        between = re.compile("|".join([_STATE, r"\d+", *map(re.escape, names)]))
        grid = {texts[-1]} if "\n" in texts[-1] else set()
        parts |= {part for text in set(texts) - grid for part in between.split(text)} | set(names)
    return sorted(part for part in parts if part)


def grid_rows(conversations: Iterable[list[Message]]) -> list[str]:
    """Return the rows of all maps shown, each with its line break, sorted. States that are not maps have none.

    A map then takes six tokens instead of forty: episodes are shorter, and a tiny policy needs to see a row as a whole.
    """
    shown = (message["content"].partition("State:\n")[2] for messages in conversations for message in messages)
    grids = (text.partition("\nYou have ")[0].split("\n") for text in shown)
    return sorted({row + "\n" for rows in grids if len({*map(len, rows)}) == 1 < len(rows) for row in rows})


SMALL_STEPS = SupervisedSettings(tokens_per_step=2048, tokens_per_forward=1024)


class GameRecipe(Recipe):
    """The settings of a game's policy."""

    teacher: type[Teacher]
    """Who demonstrates the game."""

    def demonstrations(self, seed: int, count: int, *, imperfect: bool) -> Iterator[list[Message]]:
        """Yield scripted play for a warm start, as `WorldKind.demonstrations` has it."""
        return demonstrations(self.teacher(), seed, count, imperfect=imperfect)

    def make(self) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
        teacher = self.teacher()
        perfect = list(demonstrations(teacher, self.seed, self.perfect_demonstrations, imperfect=False))
        flawed = demonstrations(
            teacher, self.seed, self.imperfect_demonstrations, imperfect=True, successes_alone=self.successes_alone
        )
        imperfect = list(flawed)
        return train_policy(self, [*phrases(teacher), *grid_rows([*perfect, *imperfect])], perfect, imperfect)
