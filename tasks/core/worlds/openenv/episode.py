"""A live episode: turns in, actions to the server, its answers out, until the server or the limit ends it."""

from tasks.core.config.openenv import OpenEnvConfig
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import Evaluation, Observation
from tasks.core.worlds.openenv.client import ActionRefused, Session, StepOutcome
from tasks.core.worlds.openenv.conversation import OpenEnvMismatch, judged, opening, shown, turn_action

_UNREADABLE = "There is no action in your answer."
_REFUSED = "That is no action here."
_CALL = ("openenv.step",)


class OpenEnvEpisode:
    """An episode (see `tasks.core.interfaces.world.Episode`). A turn without a valid action counts and earns 0."""

    def __init__(
        self, session: Session, name: str, instruction: str, config: OpenEnvConfig, code_blocks: CodeBlocks
    ) -> None:
        """Begin the episode; `name` names it in messages."""
        self._session, self._config, self._code_blocks, self._name = session, config, code_blocks, name
        self._turns, self._total = 0, 0.0
        self._is_paid: bool | None = None
        """Whether the steps before the last had rewards; None before the first step."""
        self._last = session.opening
        self.prompt = opening(self._last.observation, instruction, config)

    def step(self, text: str) -> Observation:
        """Play the turn's action. A turn after the end changes nothing. Raises WorldFault, OpenEnvMismatch."""
        if self._over:
            return Observation("The episode is over.", done=True, failed=True, code_blocks=0, reward=0.0)
        self._turns += 1
        action, blocks = turn_action(text, self._config, self._code_blocks)
        if action is None:
            return self._bad_turn(_UNREADABLE, blocks)
        try:
            self._last = self._session.step(action)
            reward = self._reward(self._last)
        except ActionRefused:
            return self._bad_turn(_REFUSED, blocks)
        except OpenEnvMismatch as error:
            raise OpenEnvMismatch(f"{self._name}, turn {self._turns}: {error}") from error
        self._total += reward
        seen = shown(self._last.observation, self._config.observation)
        return Observation(seen, done=self._over, api_calls=_CALL, code_blocks=blocks, reward=reward)

    def evaluate(self) -> Evaluation:
        """Return the server's verdict, or the verdict from the rewards so far. Raises OpenEnvMismatch."""
        try:
            return judged(self._last.observation, self._total, self._config.verdict, ended=self._last.done)
        except OpenEnvMismatch as error:
            raise OpenEnvMismatch(f"{self._name}: {error}") from None

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _reward(self, outcome: StepOutcome) -> float:
        """Return the reward of a step. Raises OpenEnvMismatch for a null that does not mean zero.

        A server gives a reward with every step, or only with the last. It sends NaN as null.
        """
        given = outcome.reward
        if given is None and (self._is_paid or (outcome.done and self._config.verdict.needs_rewards)):
            raise OpenEnvMismatch("the step's reward is null or NaN, not a number")
        if given is not None and self._is_paid is False and not outcome.done:
            raise OpenEnvMismatch("the step has a reward, but the reward of an earlier step was null or NaN")
        self._is_paid = given is not None
        return given or 0.0

    def _bad_turn(self, text: str, blocks: int) -> Observation:
        return Observation(text, done=self._over, failed=True, code_blocks=blocks, reward=0.0)

    @property
    def _over(self) -> bool:
        return self._last.done or self._turns >= self._config.max_turns
