"""The rules between `world.openenv`, text and protocol: tasks, what an agent sees and sends, who has won."""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue, TypeAdapter, ValidationError

from tasks.core.code_blocks import turn_code
from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import Evaluation, Message
from tasks.core.records.files import ArtifactError
from tasks.core.seeding import derive_seed
from tasks.core.text_games.episode import read_answer
from tasks.core.text_games.task_files import GameTask, write_tasks
from tasks.core.worlds.openenv.kind import OpenEnvConfig, OpenEnvScenario, OpenEnvVerdict, Reset

_SEEDS = 2**31
"""Many environments use it as a seed for NumPy, which takes 32 bits."""


class ResetTask(GameTask):
    """The arguments with which to reset a session, and the task's description."""

    instruction: str
    reset: Reset
    solution: tuple[str, ...]


def write_openenv(config: OpenEnvConfig, seed: int, folder: Path) -> None:
    """Write all splits to `folder`. Raises ArtifactError if the section is incomplete."""
    if not config.action:
        raise ArtifactError("params.yaml: world.openenv.action is empty; name the fields of an action")
    for split in SPLITS:
        if not getattr(config.splits, split):
            raise ArtifactError(f"params.yaml: world.openenv.splits.{split} is empty; name a scenario for it")
    write_tasks(folder, {split: list(_listed(getattr(config.splits, split), split, seed)) for split in SPLITS})


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Return `template` with those strings replaced that are keys of `values` ("$seed"), at any depth."""
    match template:
        case str():
            return values.get(template, template)
        case dict():
            return {name: filled(value, values) for name, value in template.items()}
        case list():
            return [filled(value, values) for value in template]
        case _:
            return template


def _listed(entries: tuple[OpenEnvScenario, ...], split: Split, seed: int) -> Iterator[ResetTask]:
    scenarios = 0
    for entry in entries:
        for repeat in range(entry.count):
            scenarios += 1
            scenario_id = f"{split}_{scenarios:03d}"
            for number, task in enumerate(entry.tasks):
                drawn = derive_seed(seed, "openenv", split, scenarios, number) % _SEEDS
                index = entry.first + repeat * len(entry.tasks) + number
                yield ResetTask(
                    task_id=f"{scenario_id}_{number + 1}",
                    scenario_id=scenario_id,
                    difficulty=entry.difficulty,
                    split=split,
                    instruction=entry.instruction,
                    reset=filled(task.reset, {"$seed": drawn, "$index": index}),
                    solution=task.solution,
                )


Fields = Mapping[str, JsonValue]
_MESSAGES = TypeAdapter(list[Message])


class OpenEnvMismatch(RuntimeError):  # noqa: N818
    """The server speaks another version of the protocol, or is not the server that params.yaml describes."""


class TurnAction(NamedTuple):
    """The action that a turn requests."""

    action: dict[str, JsonValue] | None
    """The action to send; None if the turn cannot be read."""
    blocks: int
    """Number of answers or code blocks in the turn; 1 if the turn itself is the action."""


def opening(observation: Fields, instruction: str, config: OpenEnvConfig) -> list[Message]:
    """Return the first messages of an episode. Raises OpenEnvMismatch."""
    if not config.prompt:
        return [{"role": "user", "content": f"{instruction}\n\n{shown(observation, config.observation)}"}]
    try:
        return _MESSAGES.validate_python(field(observation, config.prompt))
    except ValidationError:
        raise OpenEnvMismatch(f"world.openenv.prompt: {config.prompt} holds no chat messages") from None


def shown(observation: Fields, paths: Sequence[str]) -> str:
    """Return the observation as text. Raises OpenEnvMismatch if it has none of the fields."""
    if not paths:
        return "\n".join(f"{name}: {_text(value)}" for name, value in observation.items() if name != "metadata")
    values = [value for path in paths if (value := field(observation, path)) is not None]
    if not values:
        names = ", ".join(observation)
        raise OpenEnvMismatch(f"world.openenv.observation: none of {', '.join(paths)} in an observation with {names}")
    return "\n".join(map(_text, values))


def turn_action(text: str, config: OpenEnvConfig, code_blocks: CodeBlocks) -> TurnAction:
    """Return the message that the turn `text` sends."""
    content, blocks = _read(text, config, code_blocks)
    values: dict[str, JsonValue] = {"$text": content}
    if blocks and "$json" in json.dumps(config.action):
        try:
            values["$json"] = json.loads(content)
        except (ValueError, RecursionError):
            blocks = 0
    return TurnAction(filled(config.action, values) if blocks else None, blocks)


def judged(observation: Fields, total: float, verdict: OpenEnvVerdict, *, ended: bool = True) -> Evaluation:
    """Return the verdict on an episode with this last observation and sum of rewards.

    Raises OpenEnvMismatch if the server has `ended` the episode and the observation lacks a field of the verdict.
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
    """Return the grade in a field; 0 if an unfinished episode has none yet."""
    if given is None and not ended:
        return 0.0
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given):
        raise OpenEnvMismatch(f"world.openenv.verdict.score: {name} is {given!r}, no number")
    return float(given)


def field(observation: Fields, path: str) -> JsonValue:
    """Return the value at a path such as `messages.0.content`; None if there is none."""
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
    """Return the text of the turn's action and the number of actions; 0 if none can be read."""
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
    """Return the value as text, without lone surrogates, which no tokenizer accepts."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()
