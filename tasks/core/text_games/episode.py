"""A live episode of a game: turns in, observations and rewards out, until the game or its limits end it."""

from tasks.core.interfaces.world import Evaluation, Observation
from tasks.core.text_games.game import Briefing, Game, GameRules
from tasks.core.text_games.prompt import opening, read_answer, reminder, reward_text, turn_text
from tasks.core.text_games.settings import FORMAT_PENALTY, TurnRules


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
