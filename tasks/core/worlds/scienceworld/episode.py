"""A live episode: turns in, the simulator's text, rewards and score out, until the task or a limit ends it."""

from typing import Any, Protocol

from tasks.core.interfaces.world import Evaluation, Message, Observation
from tasks.core.text_games.prompt import PLAIN_FORMAT, SYSTEM_PROMPT, THINKING_FORMAT, read_answer
from tasks.core.worlds.scienceworld.settings import ScienceWorldConfig

RULES = """You are in a house with several rooms, and do a science experiment, one action a turn. Actions:
open OBJ, close OBJ: doors and containers
go to ROOM: through an open door
look around, look at OBJ, look in OBJ, read OBJ, inventory, task
pick up OBJ, put down OBJ, move OBJ to OBJ, pour OBJ in OBJ, dunk OBJ in OBJ, mix OBJ
activate OBJ, deactivate OBJ, use OBJ [on OBJ], connect OBJ to OBJ, disconnect OBJ, eat OBJ, flush OBJ
focus on OBJ: tells what the task is about; a wrong focus fails the task
wait1: one tick of the clock, wait: ten of them
When an action is ambiguous you are asked for the number of what you meant."""


def opening(description: str, seen: str, ending: str) -> list[Message]:
    """Return the prompt of an episode."""
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": f"{RULES}\n\n{description}\n\n{seen}{ending}"},
    ]


def reminder(thinking: bool, score: int, moves_left: int | None) -> str:
    """Return the end of every turn's text. `score` is out of 100."""
    left = "" if moves_left is None else f" You have {max(0, moves_left)} moves left."
    form = THINKING_FORMAT if thinking else PLAIN_FORMAT
    return f"\n\nScore: {score} of 100.{left} Always output: {form}, one action for an answer."


SOLVED = 100
_REQUIREMENT = "the experiment's score is 100"
_MOST_CHARS = 300
"""Longest action in characters: the parser tries a text against everything in sight."""
_UNREADABLE = "There is no action in your answer."
_NOT_UNDERSTOOD = ("No known action matches", "Unknown action")


class Session(Protocol):
    """A live simulator."""

    opening: dict[str, Any]
    """"description", and the answer of `step` to a first look around."""

    def step(self, action: str) -> dict[str, Any]:
        """Return {"text", "score" (of 1), "completed", "moves"}. Raises WorldFault."""
        ...

    def close(self) -> None:
        """End the session. Idempotent, never raises."""
        ...


class ScienceEpisode:
    """An episode (see `tasks.core.interfaces.world.Episode`).

    It ends like the package's own wrapper: when the task is completed, the score is negative (a wrong focus) or the
    moves exceed the limit; and also after `max_turns`. A turn's reward is its change of the score, divided by 100.
    """

    def __init__(self, session: Session, config: ScienceWorldConfig) -> None:
        self._session, self._config = session, config
        self._turns = 0
        self._take(session.opening)
        self.prompt = opening(session.opening["description"], session.opening["text"], self._ending)

    def step(self, text: str) -> Observation:
        """Play the turn's action. A turn after the end changes nothing. Raises WorldFault."""
        if self._over:
            return Observation("The episode is over.", done=True, failed=True, code_blocks=0, reward=0.0)
        answer = read_answer(text, thinking=self._config.thinking, max_actions=1)
        self._turns += 1
        action = answer.actions[0] if answer.actions else ""
        if not action or len(action) > _MOST_CHARS:
            return self._observation(_UNREADABLE, answer.count, failed=True)
        before = self.score
        seen = self._session.step(action)
        self._take(seen)
        failed = seen["text"].startswith(_NOT_UNDERSTOOD)
        calls = () if failed else (f"scienceworld.{action.split()[0].lower()}",)
        return self._observation(seen["text"], answer.count, failed, calls, (self.score - before) / SOLVED)

    def evaluate(self) -> Evaluation:
        """Return the score, and one test: whether the score is 100."""
        passed, failed = ((_REQUIREMENT,), ()) if self.score == SOLVED else ((), (_REQUIREMENT,))
        return Evaluation(passed, failed, score=max(0, self.score) / SOLVED)

    def close(self) -> None:
        """Release the simulator."""
        self._session.close()

    def _take(self, seen: dict[str, Any]) -> None:
        self.score = round(SOLVED * seen["score"])
        """The official score, -100 to 100."""
        self._moves, self._completed = int(seen["moves"]), bool(seen["completed"])

    def _observation(
        self, text: str, answers: int, failed: bool, calls: tuple[str, ...] = (), reward: float = 0.0
    ) -> Observation:
        return Observation(
            text,
            ending=self._ending,
            done=self._over,
            failed=failed,
            api_calls=calls,
            code_blocks=answers,
            reward=reward,
        )

    @property
    def _ending(self) -> str:
        limit = self._config.max_moves
        return reminder(self._config.thinking, self.score, None if limit is None else limit - self._moves)

    @property
    def _over(self) -> bool:
        limit = self._config.max_moves
        late = limit is not None and self._moves > limit
        return self._completed or self.score < 0 or late or self._turns >= self._config.max_turns
