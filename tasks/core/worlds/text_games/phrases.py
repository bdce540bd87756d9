"""Phrases that every episode of a game repeats, for a tokenizer that takes each as one token."""

import re
from random import Random

from tasks.core.worlds.text_games.demonstrations import UNKNOWN_ACTION, Teacher
from tasks.core.worlds.text_games.prompt import SYSTEM_PROMPT, opening, reminder, turn_text

_STATE = "\x00"
_FIXED = (
    *(
        "system\n",
        "user\n",
        "assistant\n",
        SYSTEM_PROMPT,
        "Reward:\n",
        "\n\nTurn ",
        "You have ",
        "-0.",
        "√",
        UNKNOWN_ACTION,
    ),
    *("<think>", "<answer>", "</answer>", " || ", ", ", "I choose ", " and ", ".</think><answer>"),
)
_DRAWN = 100


def phrases(teacher: Teacher) -> list[str]:
    """The game's own texts between its states, numbers and names of actions, and those names; sorted."""
    random, found = Random(0), set(_FIXED)
    for number in range(_DRAWN):
        rules = teacher.turns.model_copy(update={"thinking": number % 2 == 0})
        task = teacher.task(random)
        names = teacher.actions(task)
        briefing = teacher.kind.briefing(task)
        texts = [message["content"] for message in opening(briefing, _STATE, rules)]
        texts += [turn_text(1, _STATE), "\n" + reminder(rules, 1), teacher.kind.start(task, 0).state.partition(":")[0]]
        between = re.compile("|".join([_STATE, r"\d+", *map(re.escape, names)]))
        grid = {texts[-1]} if "\n" in texts[-1] else set()
        found |= {part for text in set(texts) - grid for part in between.split(text)} | set(names)
    return sorted(part for part in found if part)
