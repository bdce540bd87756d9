"""Engines that recite turns instead of sampling them: the whole pipeline without a model.

`oracle` solves every task that its world can demonstrate. `scripted` does so in half of the rollouts and has a seeded
flaw in the others, so that groups have mixed returns. No policy is asked: the log-probs are 0, as of a policy that is
certain, neither the loaded checkpoint nor a temperature changes anything, and `top_k` and `top_p` are refused. Updates
on such rollouts are imitation with signed weights (the learner uses its own old log-probs): they show that the learner
works, but are not LOOP.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.core.interfaces.engine import ContextOverflow, Generation, GenerationRequest
from tasks.core.interfaces.world import Demonstrating, World
from tasks.core.policies.chat_format import ChatFormat

Script = Callable[[str, int], Sequence[str]]
"""Maps a task's id and a seed to the assistant turns of one rollout."""

CONTEXT_LENGTH = 2**20
"""There is no model, so this only ends runaway conversations."""
GIVE_UP = '```python\napis.supervisor.complete_task(status="fail")\n```'
WRONG_ANSWER = '```python\napis.supervisor.complete_task(answer="no idea")\n```'
FLAW_SHARE = 0.5
"""Share of the rollouts of `scripted` with a flaw."""


@dataclass
class _Recital:
    """One conversation: its turns and how many were recited."""

    turns: Sequence[str]
    said: int = 0


class ScriptedEngine:
    """An `Engine` that recites: `script` writes a rollout's turns when the first turn is requested.

    After its last turn a rollout gives up. Requests must name their task.
    """

    version = "1"
    context_length = CONTEXT_LENGTH

    def __init__(self, name: str, chat: ChatFormat, script: Script) -> None:
        self.name = name
        self._chat, self._script = chat, script
        self._recitals: dict[str, _Recital] = {}
        self._queue: dict[str, GenerationRequest] = {}

    def load_adapter(self, path: Path | None) -> None:
        """Forget all conversations. The checkpoint is not read."""
        self.close()

    def submit(self, request: GenerationRequest) -> None:
        """Queue one turn.

        Raises ContextOverflow, ValueError for `top_k` or `top_p`, and whatever the script raises for the task
        (KeyError, ValueError).
        """
        if request.sampling.top_k or request.sampling.top_p < 1:
            raise ValueError(f"{request.sequence_id}: the engine {self.name} recites: it has no top_k and no top_p")
        if len(request.prompt_ids) >= self.context_length:
            raise ContextOverflow(request.sequence_id, f"a prompt of {len(request.prompt_ids)} tokens")
        if request.sequence_id not in self._recitals:
            self._recitals[request.sequence_id] = _Recital(self._script(request.task_id, request.seed))
        self._queue[request.sequence_id] = request

    def collect(self) -> list[Generation]:
        """Return all queued turns, in order."""
        queue, self._queue = self._queue, {}
        return [self._recite(request) for request in queue.values()]

    def release(self, sequence_id: str) -> None:
        """Forget a conversation."""
        self._recitals.pop(sequence_id, None)
        self._queue.pop(sequence_id, None)

    def close(self) -> None:
        """Forget all conversations."""
        self._recitals.clear()
        self._queue.clear()

    def _recite(self, request: GenerationRequest) -> Generation:
        recital = self._recitals[request.sequence_id]
        text = recital.turns[recital.said] if recital.said < len(recital.turns) else GIVE_UP
        recital.said += 1
        room = min(request.sampling.max_tokens, self.context_length - len(request.prompt_ids))
        ids = self._chat.turn_ids(text)
        kept = tuple(ids[:room])
        return Generation(request.sequence_id, kept, (0.0,) * len(kept), "stop" if len(ids) <= room else "length")


def oracle_engine(world: World | None, chat: ChatFormat) -> ScriptedEngine:
    """Return an engine that recites the world's solutions. Raises ValueError for a world without demonstrations."""
    demonstrating = _demonstrating(world)
    return ScriptedEngine("oracle", chat, lambda task_id, seed: demonstrating.demonstration(task_id))


def flawed_engine(world: World | None, chat: ChatFormat) -> ScriptedEngine:
    """Return an engine like the oracle, but flawed in FLAW_SHARE of the rollouts. Raises like `oracle_engine`."""
    demonstrating = _demonstrating(world)
    return ScriptedEngine(
        "scripted", chat, lambda task_id, seed: with_flaw(demonstrating.demonstration(task_id), random.Random(seed))
    )


def with_flaw(turns: Sequence[str], generator: random.Random) -> list[str]:
    """Return the turns, or in FLAW_SHARE of the draws a version that gives up early, answers wrongly or skips a turn.

    The last turn must complete the task, by the call that all our worlds share.
    """
    if generator.random() >= FLAW_SHARE:
        return list(turns)
    *work, end = turns
    cut = generator.randrange(len(work)) if work else 0
    flaws = ([*work[:cut], GIVE_UP], [*work, WRONG_ANSWER], [*work[:-1], end])
    return generator.choice(flaws)


def _demonstrating(world: World | None) -> Demonstrating:
    if not isinstance(world, Demonstrating):
        raise ValueError(
            "engine.name: this world has no solutions to recite; use an engine that samples, without demonstrations"
        )
    return world
