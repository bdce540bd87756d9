"""A live episode with a simulated user: the official runner's loop in the package's normal mode."""

from tasks.core.interfaces.world import Observation
from tasks.core.tool_calls import Call, CallForm, error_text
from tasks.core.worlds.tau2.episode import Tau2Episode
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.users import STOP_WORDS, SimulatedUser

GREETING = "Hi! How can I help you today?"
"""The package's own first message, by its agent."""
EMPTY = "a message must have text or calls"


class ConversingEpisode(Tau2Episode):
    """An episode in which the agent talks with a user, who may have tools too.

    A turn without a call goes to the user; calls go to the environment, whatever else the turn says. The user ends the
    episode by a stop word. What the user calls, and hears of it, the agent does not see. A user who says nothing, or
    writes a call that cannot be read, ends the episode as `user_error`, which is worth nothing.
    """

    def __init__(self, pool: Tau2Pool, task_id: str, form: CallForm, user: SimulatedUser) -> None:
        """Begin the episode by the user's first message. Raises WorldFault and ChatApiError."""
        super().__init__(pool, task_id, "official", form)
        self._steps, self._user = 0, user
        self._messages.append({"role": "assistant", "content": GREETING})
        try:
            heard = self._heard()
        except BaseException:
            self.close()
            raise
        self.prompt = [
            self.prompt[0],
            {"role": "assistant", "content": GREETING},
            {"role": "user", "content": heard},
        ]

    def _stops(self, calls: list[Call]) -> bool:
        return False

    def _spoken(self, text: str) -> Observation:
        if not text.strip():
            self._ending = "agent_error"
            return Observation(error_text(EMPTY, self._form), done=True, failed=True, code_blocks=0)
        self._messages.append({"role": "assistant", "content": text})
        self._limit()
        return Observation(self._heard(), done=self._ending is not None, code_blocks=0)

    def _heard(self) -> str:
        """Let the user act until it speaks or the episode ends; return its words."""
        while self._ending is None:
            said = self._user.reply(self._messages)
            self._steps += 1
            if said is None:
                self._ending = "user_error"
            elif said.calls:
                self._play(said.calls, "user")
            else:
                return self._told(said.text)
        return ""

    def _told(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        if any(word in text for word in STOP_WORDS):
            self._ending = "user_stop"
        self._limit()  # after the stop word, as in the official runner
        return text
