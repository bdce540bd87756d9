"""A live episode: the policy's text goes to the environment as a chat server's answer would."""

from collections.abc import Callable, Sequence

from tasks.core.interfaces.world import Evaluation, Message, Observation
from tasks.core.tool_calls.reading import Call, MalformedCall, prose, read_calls
from tasks.core.tool_calls.texts import Result, answer_text, tools_text
from tasks.core.worlds.verifiers.pool import Outcome, Player, Seen
from tasks.core.worlds.verifiers.settings import VerifiersConfig

OVER = "The episode is over."
Turn = tuple[str, Sequence[Call], str | None]


class VerifiersEpisode:
    """An episode (see `tasks.core.interfaces.world.Episode`).

    A turn is a model's message: text, or calls of tools where the environment has any. A verdict before the end is that
    of a second player, which plays the same turns and is then cut short, so that asking changes nothing.
    """

    def __init__(self, config: VerifiersConfig, started: Callable[[], Player]) -> None:
        """Begin the episode with a new player. Raises WorldFault."""
        self._config, self._started = config, started
        self._player, self._turns = started(), list[Turn]()
        opening = self._player.seen
        self._tools = opening.tools if isinstance(opening, Seen) else []
        self.prompt = _opening(opening, config) if isinstance(opening, Seen) else [_said("user", OVER)]

    def step(self, text: str) -> Observation:
        """Play one turn. A turn after the end changes nothing. Raises what the interface says."""
        if isinstance(self._player.seen, Outcome):
            return Observation(OVER, done=True, failed=True, code_blocks=0)
        turn = self._read(text)
        self._turns.append(turn)
        content, calls, error = turn
        seen = self._player.answer(content, calls, error)
        if isinstance(seen, Outcome):
            return Observation(OVER, done=True, failed=error is not None, code_blocks=len(calls))
        return self._observation(seen, calls, error)

    def evaluate(self) -> Evaluation:
        """Return the rubric's verdict on the turns so far. Raises WorldFault where the rubric fails."""
        seen = self._player.seen
        outcome = seen if isinstance(seen, Outcome) else self._cut_short()
        low, high = self._config.lowest, self._config.highest
        score = min(1.0, max(0.0, (outcome.reward - low) / (high - low)))
        parts = ", ".join(f"{name} {value:g}" for name, value in sorted(outcome.rewards.items()))
        requirement = f"rewards of {self._config.solved:g} ({parts})"
        solved = outcome.reward >= self._config.solved
        return Evaluation((requirement,) if solved else (), () if solved else (requirement,), score=score)

    def close(self) -> None:
        """End the player. Idempotent."""
        self._player.close()

    def _read(self, text: str) -> Turn:
        clean = text.encode("utf-8", "replace").decode("utf-8")
        if not self._tools:
            return clean, (), None
        try:
            calls = read_calls(clean)
        except MalformedCall as error:
            return clean, (), str(error)
        return (prose(clean) if calls else clean), calls, None

    def _observation(self, seen: Seen, calls: Sequence[Call], error: str | None) -> Observation:
        answers = [message for message in seen.messages if message["role"] == "tool"]
        others = [str(message["content"]) for message in seen.messages if message["role"] != "tool"]
        results = [Result(str(message["content"]), bool(message["failed"])) for message in answers]
        shown = [answer_text(calls, results, self._config.calls)] if results else []
        names = [f"{self._config.environment}.{message['name']}" for message in answers]
        failed = [name for name, result in zip(names, results, strict=True) if result.error]
        return Observation(
            "\n\n".join([*shown, *others]),
            done=False,
            failed=error is not None or bool(failed),
            api_calls=tuple(names),
            failed_api_calls=tuple(failed),
            code_blocks=len(calls),
        )

    def _cut_short(self) -> Outcome:
        player = self._started()
        try:
            for content, calls, error in self._turns:
                player.answer(content, calls, error)
            return player.seen if isinstance(player.seen, Outcome) else player.end()
        finally:
            player.close()


def _opening(seen: Seen, config: VerifiersConfig) -> list[Message]:
    """Return the environment's first messages; tools are told of at the end of the system message."""
    messages = [_said(message["role"], str(message["content"])) for message in seen.messages]
    if not seen.tools:
        return messages
    tools = tools_text(seen.tools, config.calls)
    if messages and messages[0]["role"] == "system":
        return [_said("system", f"{messages[0]['content']}\n\n{tools}"), *messages[1:]]
    return [_said("system", tools), *messages]


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}  # type: ignore[typeddict-item]
