"""Texts of a game's conversation, laid out like RAGEN's: the briefing, then state, actions left and format.

Also the way back: the actions that a turn's text requests. The text is hostile; reading it takes linear time.
"""

import re
from dataclasses import dataclass

from tasks.core.interfaces.world import Message
from tasks.core.text_games.game import Briefing
from tasks.core.text_games.settings import TurnRules

SEPARATOR = "||"
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_THOUGHT_ENDS = re.compile(r"</think>\s*<answer>")


@dataclass(frozen=True)
class Answer:
    """The actions that a turn requests."""

    actions: tuple[str, ...]
    """As written, without outer blanks; empty if the turn cannot be read."""
    count: int
    """How many answers the turn began. Only the first is played."""


def read_answer(text: str, *, thinking: bool, max_actions: int) -> Answer:
    """Read the first answer of a turn: `<answer>A || B</answer>`.

    With `thinking`, it must directly follow `<think>...</think>`. As in RAGEN, text around the answer is ignored, tags
    in it are dropped, and so are actions beyond `max_actions`.
    """
    content = _first_answer(text, thinking)
    for tag in _TAGS:
        content = content.replace(tag, "")
    actions = [action.strip() for action in content.split(SEPARATOR)]
    return Answer(tuple([action for action in actions if action][:max_actions]), text.count("<answer>"))


def answer_text(actions: tuple[str, ...] | list[str], thought: str | None) -> str:
    """Return the turn that requests `actions`; `thought` None leaves out the thinking part."""
    answer = f"<answer>{f' {SEPARATOR} '.join(actions)}</answer>"
    return answer if thought is None else f"<think>{thought}</think>{answer}"


def _first_answer(text: str, thinking: bool) -> str:
    if not thinking:
        begin = text.find("<answer>")
        return _between(text, begin + len("<answer>")) if begin >= 0 else ""
    begin = text.find("<think>")
    thought = _THOUGHT_ENDS.search(text, begin) if begin >= 0 else None
    return "" if thought is None else _between(text, thought.end())


def _between(text: str, begin: int) -> str:
    """Return the text from `begin` to the next end of an answer; empty if there is none."""
    end = text.find("</answer>", begin)
    return text[begin:end] if end >= 0 else ""


SYSTEM_PROMPT = "You're a helpful assistant."
THINKING_FORMAT = "<think> [your thoughts] </think> <answer> [your answer] </answer>"
PLAIN_FORMAT = "<answer> [your answer] </answer>"
RESPONSE_WORDS = 100


def opening(briefing: Briefing, state: str, rules: TurnRules) -> list[Message]:
    """Return the prompt of an episode."""
    parts = [briefing.rules]
    if briefing.symbols:
        meanings = ", ".join(f"{symbol}: {meaning}" for symbol, meaning in briefing.symbols)
        parts.append(f"The meaning of each symbol in the state is:\n{meanings}")
    if briefing.actions:
        parts.append(f"Your available actions are:\n{', '.join(briefing.actions)}")
    if rules.max_actions_per_turn > 1:
        parts.append(
            f"You can make up to {rules.max_actions_per_turn} actions in a turn, "
            f'separated by the action separator " {SEPARATOR} ".'
        )
    first = turn_text(1, state) + reminder(rules, rules.max_actions)
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": "\n".join([*parts, first])},
    ]


def turn_text(turn: int, state: str) -> str:
    """Return the head of a turn; turns count from 1."""
    return f"Turn {turn}:\nState:\n{state}\n"


def reminder(rules: TurnRules, actions_left: int) -> str:
    """Return the end of every turn's text."""
    form = THINKING_FORMAT if rules.thinking else PLAIN_FORMAT
    return (
        f"You have {actions_left} actions left. Always output: {form} with no extra text. Strictly follow this format. "
        f"Max response length: {RESPONSE_WORDS} words (tokens)."
    )


def reward_text(reward: float) -> str:
    """Return the text of the last turn's reward, without its penalty."""
    return f"Reward:\n{round(reward, 6):g}\n"
