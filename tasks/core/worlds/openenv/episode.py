"""One live episode: turns in, actions to the server, its answers out, until the server or the limit ends it."""

from tasks.core.config.openenv import OpenEnvConfig
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import Evaluation, Observation
from tasks.core.worlds.openenv.client import ActionRefused, Session
from tasks.core.worlds.openenv.conversation import judged, opening, shown, turn_action

_UNREADABLE = "There is no action in your answer."
_REFUSED = "That is no action here."
_CALL = ("openenv.step",)


class OpenEnvEpisode:
    """See `tasks.core.interfaces.world.Episode`. A turn without an action that the server takes counts and earns 0."""

    def __init__(self, session: Session, instruction: str, config: OpenEnvConfig, code_blocks: CodeBlocks) -> None:
        self._session, self._config, self._code_blocks = session, config, code_blocks
        self._turns, self._total = 0, 0.0
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
        except ActionRefused:
            return self._bad_turn(_REFUSED, blocks)
        reward = self._last.reward or 0.0
        self._total += reward
        seen = shown(self._last.observation, self._config.observation)
        return Observation(seen, done=self._over, api_calls=_CALL, code_blocks=blocks, reward=reward)

    def evaluate(self) -> Evaluation:
        """The server's verdict, or that of the rewards so far."""
        return judged(self._last.observation, self._total, self._config.verdict)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _bad_turn(self, text: str, blocks: int) -> Observation:
        return Observation(text, done=self._over, failed=True, code_blocks=blocks, reward=0.0)

    @property
    def _over(self) -> bool:
        return self._last.done or self._turns >= self._config.max_turns
