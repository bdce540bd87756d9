"""An episode of a game: turns in, observations and rewards out, until the game or its limits end it.

Its texts are laid out like RAGEN's: the briefing, then state, actions left and format. The agent's text is hostile;
reading it takes linear time. A game knows nothing of turns, answers or penalties.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from tasks.core.interfaces.world import Evaluation, Message, Observation
from tasks.core.text_games.settings import FORMAT_PENALTY, TurnRules


@dataclass(frozen=True)
class Briefing:
    """Rules that a player sees once, before the first turn."""

    rules: str
    symbols: tuple[tuple[str, str], ...] = ()
    """Symbols of the state and their meanings."""
    actions: tuple[str, ...] = ()
    """Names of the actions; empty if they depend on the state, which then names them."""


class Game(Protocol):
    """A game in play."""

    over: bool
    """Whether the game has ended."""
    solved: bool

    @property
    def state(self) -> str:
        """The player's view."""
        ...

    def understood(self, action: str) -> str | None:
        """Return an action in the game's own form; None if the (hostile) text, of any length, is no action now."""
        ...

    def play(self, action: str) -> float:
        """Play an action that `understood` returned. Returns its reward."""
        ...


@dataclass(frozen=True)
class GameRules:
    """The part that all games of a world share."""

    name: str
    """The world's name; actions are logged as `<name>.<action>`."""
    requirement: str
    """The goal, worded as the only test of an episode."""
    lowest_reward: float
    """Lowest possible sum of an episode's rewards, without the penalties of turns."""
    highest_reward: float
    of_chance: bool = False
    """Whether the effect of an action depends on chance."""


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
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": "\n".join([*parts, first])}]


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


class GameEpisode:
    """An episode (see `tasks.core.interfaces.world.Episode`).

    A turn without a readable answer, or with an action that the game does not have, costs the penalty once; its other
    actions are played. As in RAGEN's es_manager.py, this holds after the game's end too, if the game's actions never
    change. The score is the sum of all rewards and penalties, mapped linearly from the lowest and highest possible sum
    to [0, 1]: for group estimators this is only a constant factor.
    """

    def __init__(self, game: Game, briefing: Briefing, common: GameRules, rules: TurnRules) -> None:
        self._game, self._common, self._rules = game, common, rules
        self._turns = self._actions = 0
        self._fixed = bool(briefing.actions)
        self._total = 0.0
        self.prompt = opening(briefing, game.state, rules)

    def step(self, text: str) -> Observation:
        """Play the actions of the turn's first answer. A turn after the end changes nothing."""
        if self._over:
            return Observation("The game is over.", done=True, failed=True, code_blocks=0, reward=0.0)
        rules = self._rules
        answer = read_answer(text, thinking=rules.thinking, max_actions=rules.max_actions_per_turn)
        played, idle, unknown, earned = self._play(answer.actions)
        failed = unknown or not answer.actions
        reward = earned - FORMAT_PENALTY * failed
        self._turns += 1
        self._total += reward
        left = rules.max_actions - self._actions
        return Observation(
            reward_text(earned) + "\n" + turn_text(self._turns + 1, self._game.state),
            ending=reminder(rules, left),
            done=self._over,
            failed=failed,
            api_calls=played,
            failed_api_calls=idle,
            code_blocks=answer.count,
            reward=reward,
        )

    def evaluate(self) -> Evaluation:
        """Return the score, and one test: whether the game is solved."""
        requirement = (self._common.requirement,)
        passed, failed = (requirement, ()) if self._game.solved else ((), requirement)
        return Evaluation(passed, failed, score=self._score())

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    @property
    def _over(self) -> bool:
        rules = self._rules
        return self._game.over or self._actions >= rules.max_actions or self._turns >= rules.max_turns

    def _play(self, actions: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], bool, float]:
        """Play actions. Returns those played, those without effect, whether any was unknown, and the reward."""
        game, played, idle, earned, unknown = self._game, [], [], 0.0, False
        for text in actions:
            over = self._over
            if over and not self._fixed:
                break
            action = game.understood(text)
            unknown = unknown or action is None
            if over or action is None:
                continue
            before = game.state
            earned += game.play(action)
            self._actions += 1
            played.append(f"{self._common.name}.{action}")
            if game.state == before:
                idle.append(played[-1])
        return tuple(played), tuple(idle), unknown, earned

    def _score(self) -> float:
        lowest = self._common.lowest_reward - self._rules.max_turns * FORMAT_PENALTY
        share = (self._total - lowest) / (self._common.highest_reward - lowest)
        return min(1.0, max(0.0, share))
