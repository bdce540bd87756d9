"""A live episode: the package's conversation, with the agent's text played in one process and judged in another."""

from tasks.core.interfaces.world import Evaluation, Observation
from tasks.core.worlds.bfcl.player import Played
from tasks.core.worlds.bfcl.pool import BfclPool, Turns
from tasks.core.worlds.bfcl.settings import STEPS_PER_TURN

SOLVED = "after each of the user's turns, state and results are those of the ground truth"
"""The only requirement; if it fails, the verdict is the package's own message."""
_RAISED, _REFUSED = "Error during execution: ", '{"error": '
_OVER = "The conversation is over."


class BfclEpisode:
    """An episode (see `tasks.core.interfaces.world.Episode`).

    A turn whose text contains calls that can be decoded is a step, answered by their results. A turn without calls ends
    the user's turn: the user's next turn begins, or the episode is over. After too many steps the episode is over, and
    the task has failed.
    """

    def __init__(self, pool: BfclPool, task_id: str) -> None:
        """Begin the episode. Raises WorldFault."""
        self._pool, self._task_id = pool, task_id
        task = pool.task(task_id)
        self.prompt, *self._coming = task["turns"]
        self._functions: dict[str, str] = task["functions"]
        self._turns: Turns = []
        self._over = False
        self._player = pool.player(task_id)

    def step(self, text: str) -> Observation:
        """Play one turn of text. A turn after the end changes nothing. Raises what the interface says."""
        if self._over:
            return Observation(_OVER, done=True, failed=True, code_blocks=0)
        played = self._player.play(text)
        self._turns = self._turns or [[]]
        return self._executed(played) if played.calls else self._next_turn()

    def evaluate(self) -> Evaluation:
        """Run the package's own checker on the turns decoded so far. Raises WorldFault."""
        error = self._pool.judge(self._task_id, self._turns)
        return Evaluation((), (error,)) if error else Evaluation((SOLVED,), ())

    def close(self) -> None:
        """End the player. Idempotent."""
        self._player.close()

    def _executed(self, played: Played) -> Observation:
        self._turns[-1].append(played.calls)
        self._over = len(self._turns[-1]) > STEPS_PER_TURN
        pairs = list(zip(played.calls, played.results, strict=True))
        named = [(self._api(call), result) for call, result in pairs]
        return Observation(
            repr([{"role": "tool", "name": call, "content": result} for call, result in pairs]),
            done=self._over,
            failed=not all(api for api, _ in named),  # a function's error counts as an answer: solutions get some too
            api_calls=tuple(api for api, _ in named if api),
            failed_api_calls=tuple(api for api, result in named if api and result.startswith((_RAISED, _REFUSED))),
        )

    def _next_turn(self) -> Observation:
        if not self._coming:
            self._over = True
            return Observation(_OVER, done=True, code_blocks=0)
        (user_message,) = self._coming.pop(0)
        self._turns.append([])
        return Observation(user_message["content"], done=False, code_blocks=0)

    def _api(self, call: str) -> str:
        """Return `class.function`; empty if the call is of no function of the task."""
        name = call.partition("(")[0]
        return f"{self._functions[name]}.{name}" if name in self._functions else ""
