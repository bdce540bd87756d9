"""A live episode: the official runner's loop, with the calls executed in a process of their own.

In solo mode, or with a simulated user in the package's normal mode.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tasks.core.interfaces.world import Evaluation, Message, Observation
from tasks.core.tool_calls import Call, CallForm, MalformedCall, Result, answer_text, error_text, read_calls, tools_text
from tasks.core.worlds.tau2.pool import Ending, Side, Tau2Pool
from tasks.core.worlds.tau2.users import STOP_WORDS, SimulatedUser

Prompt = Literal["official", "ticket"]

BEGIN = "Solve the ticket."
SHORT_SYSTEM = "You solve tickets of a phone company by calling its tools, one at a time, and call done at the end."
OVER = "The ticket is closed."


def opening(task: Mapping[str, Any], prompt: Prompt, form: CallForm) -> list[Message]:
    """Return the first messages of an episode.

    official: the package's own system prompt (instructions, policy, manual and ticket) and the tools' schemas. ticket:
    one sentence and the ticket, for a policy that knows the tools.
    """
    if prompt == "ticket":
        return [{"role": "system", "content": SHORT_SYSTEM}, {"role": "user", "content": task["ticket"]}]
    return [
        {"role": "system", "content": f"{task['system']}\n\n{tools_text(task['tools'], form)}"},
        {"role": "user", "content": BEGIN},
    ]


MAX_STEPS, MAX_ERRORS = 200, 10
"""The package's defaults (`tau2.config`). A step is a message of the agent, of the user, or of the environment. The
runner counts none for a solo agent's first: 101 turns, of which `done` counts up to the last but one."""
STOP = "done"
ONLY_CALLS = "LLMSoloAgent only supports tool calls."
"""The package's own message for a turn without a call, which ends its simulation."""


class Tau2Episode:
    """An episode (see `tasks.core.interfaces.world.Episode`).

    A turn is one or more calls, answered together; `done` among them ends the episode, and calls beside it are not
    executed. A turn without a call ends it too and is worth nothing, and so are the package's limits. A call that
    cannot be read is answered by an error, where the official runner would give the whole simulation up.
    """

    def __init__(self, pool: Tau2Pool, task_id: str, prompt: Prompt, form: CallForm) -> None:
        """Begin the episode. Raises WorldFault."""
        self._pool, self._task_id, self._form = pool, task_id, form
        task = pool.task(task_id)
        self.prompt = opening(task, prompt, form)
        self._tools = {schema["function"]["name"] for schema in task["tools"]}
        self._messages: list[dict[str, Any]] = []
        self._steps, self._errors = -1, 0
        self._ending: Ending | None = None
        self._player = pool.player(task_id)

    def step(self, text: str) -> Observation:
        """Play one turn of text. A turn after the end changes nothing. Raises what the interface says."""
        if self._ending is not None:
            return Observation(OVER, done=True, failed=True, code_blocks=0)
        self._steps += 1
        try:
            calls = read_calls(text)
        except MalformedCall as error:
            return self._refused(str(error))
        if not calls:
            return self._spoken(text)
        if self._stops(calls):
            self._ending = "agent_stop" if self._steps < MAX_STEPS else "max_steps"
            return Observation(OVER, done=True, code_blocks=len(calls))
        return self._executed(calls)

    def evaluate(self) -> Evaluation:
        """Run the package's own evaluation on the episode so far. Raises WorldFault."""
        verdict = self._pool.judge(self._task_id, **self.played)
        passed = tuple(text for text, met in verdict.checks if met)
        failed = tuple(text for text, met in verdict.checks if not met)
        return Evaluation(passed, failed)

    @property
    def played(self) -> dict[str, Any]:
        """The messages as the package has them, and why they ended."""
        return {"messages": self._messages, "ending": self._ending or "max_steps"}

    def close(self) -> None:
        """End the player. Idempotent."""
        self._player.close()

    def _spoken(self, text: str) -> Observation:
        """Take a turn without a call."""
        self._ending = "agent_error"
        return Observation(error_text(ONLY_CALLS, self._form), done=True, failed=True, code_blocks=0)

    def _stops(self, calls: list[Call]) -> bool:
        return any(call.name == STOP for call in calls)

    def _executed(self, calls: list[Call]) -> Observation:
        results = self._play(calls, "assistant")
        pairs = zip(calls, results, strict=True)
        named = [(f"{self._pool.domain}.{call.name}", result) for call, result in pairs if call.name in self._tools]
        return Observation(
            answer_text(calls, results, self._form),
            done=self._ending is not None,
            failed=any(result.error for result in results),
            api_calls=tuple(name for name, _ in named),
            failed_api_calls=tuple(name for name, result in named if result.error),
            code_blocks=len(calls),
        )

    def _refused(self, error: str) -> Observation:
        self._count(1)
        return Observation(error_text(error, self._form), done=self._ending is not None, failed=True)

    def _play(self, calls: Sequence[Call], side: Side) -> list[Result]:
        """Execute and record the calls of one message of a side."""
        results = self._player.play(calls, side)
        said = [call.message | {"id": f"{self._steps}_{call.id}", "requestor": side} for call in calls]
        self._messages.append({"role": side, "tool_calls": said})
        self._messages += [
            {"role": "tool", "id": call["id"], "requestor": side, "content": result.content, "error": result.error}
            for call, result in zip(said, results, strict=True)
        ]
        self._count([result.error for result in results].count(True))
        return results

    def _count(self, errors: int) -> None:
        """Count the environment's step, and the errors in it."""
        self._steps += 1
        self._errors += errors
        self._limit()

    def _limit(self) -> None:
        """End the episode at a limit, in the order of the official runner."""
        if self._steps >= MAX_STEPS:
            self._ending = "max_steps"
        if self._errors >= MAX_ERRORS:
            self._ending = "too_many_errors"


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
        self.prompt = [self.prompt[0], {"role": "assistant", "content": GREETING}, {"role": "user", "content": heard}]

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
