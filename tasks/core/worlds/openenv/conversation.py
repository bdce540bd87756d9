"""The rules between text and protocol: what the agent is shown of an observation, what its turn sends, who has won."""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from pydantic import JsonValue, TypeAdapter, ValidationError

from tasks.core.config.openenv import OpenEnvConfig, OpenEnvVerdict
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import Evaluation, Message
from tasks.core.worlds.code_blocks import turn_code
from tasks.core.worlds.openenv.tasks import filled
from tasks.core.worlds.text_games.answers import read_answer

Fields = Mapping[str, JsonValue]
_MESSAGES = TypeAdapter(list[Message])


class OpenEnvMismatch(RuntimeError):  # noqa: N818
    """A server answers, but in another version of the protocol, or it is not the one that params.yaml speaks of."""


class TurnAction(NamedTuple):
    """The request in a turn."""

    action: dict[str, JsonValue] | None
    """To be sent; None: the turn cannot be read."""
    blocks: int
    """Answers or code blocks in the turn; 1 where the turn is the action."""


def opening(observation: Fields, instruction: str, config: OpenEnvConfig) -> list[Message]:
    """The first messages of an episode. Raises OpenEnvMismatch."""
    if not config.prompt:
        return [{"role": "user", "content": f"{instruction}\n\n{shown(observation, config.observation)}"}]
    try:
        return _MESSAGES.validate_python(field(observation, config.prompt))
    except ValidationError:
        raise OpenEnvMismatch(f"world.openenv.prompt: {config.prompt} holds no chat messages") from None


def shown(observation: Fields, paths: Sequence[str]) -> str:
    """The observation as text. Raises OpenEnvMismatch when it has none of the fields."""
    if not paths:
        return "\n".join(f"{name}: {_text(value)}" for name, value in observation.items() if name != "metadata")
    found = [value for path in paths if (value := field(observation, path)) is not None]
    if not found:
        names = ", ".join(observation)
        raise OpenEnvMismatch(f"world.openenv.observation: none of {', '.join(paths)} in an observation with {names}")
    return "\n".join(map(_text, found))


def turn_action(text: str, config: OpenEnvConfig, code_blocks: CodeBlocks) -> TurnAction:
    """The message that the turn `text` sends."""
    content, blocks = _read(text, config, code_blocks)
    values: dict[str, JsonValue] = {"$text": content}
    if blocks and "$json" in json.dumps(config.action):
        try:
            values["$json"] = json.loads(content)
        except (ValueError, RecursionError):
            blocks = 0
    return TurnAction(filled(config.action, values) if blocks else None, blocks)


def judged(observation: Fields, total: float, verdict: OpenEnvVerdict, *, ended: bool = True) -> Evaluation:
    """The verdict on an episode whose last observation and sum of rewards these are.

    Raises OpenEnvMismatch where the server has `ended` it and its last observation lacks a field of the verdict.
    """
    score = (total - verdict.lowest) / (verdict.highest - verdict.lowest)
    solved, requirement = total >= verdict.solved, f"the rewards add up to at least {verdict.solved:g}"
    if verdict.score:
        score = _score(field(observation, verdict.score), verdict.score, ended)
    if verdict.success:
        given = field(observation, verdict.success)
        if given is None and ended:
            raise OpenEnvMismatch(f"world.openenv.verdict.success: {verdict.success} is null at the end of an episode")
        solved, requirement = given is True, f"the server says {verdict.success}"
    passed, failed = ((requirement,), ()) if solved else ((), (requirement,))
    return Evaluation(passed, failed, score=min(1.0, max(0.0, score)))


def _score(given: JsonValue, name: str, ended: bool) -> float:
    """Return the grade in a field; 0 where an episode that goes on has none yet."""
    if given is None and not ended:
        return 0.0
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given):
        raise OpenEnvMismatch(f"world.openenv.verdict.score: {name} is {given!r}, no number")
    return float(given)


def field(observation: Fields, path: str) -> JsonValue:
    """The value at a path such as `messages.0.content`; None where there is none."""
    value: JsonValue = dict(observation)
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _read(text: str, config: OpenEnvConfig, code_blocks: CodeBlocks) -> tuple[str, int]:
    """The text of the turn's action, and how many there are; 0: none can be read."""
    match config.reads:
        case "turn":
            return text, 1
        case "answer":
            answer = read_answer(text, thinking=False, max_actions=1)
            return (answer.actions[0], answer.count) if answer.actions else ("", 0)
        case "code":
            code = turn_code(text, code_blocks)
            return code.text, code.blocks


def _text(value: JsonValue) -> str:
    """Without lone surrogates, which no tokenizer takes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()
