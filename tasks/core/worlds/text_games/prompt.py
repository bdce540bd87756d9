"""Texts of a game's conversation, laid out like RAGEN's: the briefing, then state, actions left and format."""

from tasks.core.config.text_games import TurnRules
from tasks.core.interfaces.world import Message
from tasks.core.worlds.text_games.answers import SEPARATOR
from tasks.core.worlds.text_games.game import Briefing

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
