"""Environments of verifiers, played: one turn, several, tools, and the games of a package."""

import json
import re
from contextlib import closing

import pytest

from tasks.core.config.splits import SPLITS, Split
from tasks.core.interfaces.world import Evaluation, Observation
from tasks.core.worlds.verifiers.world import VerifiersWorld
from tests.core.worlds.verifiers.conftest import GAMES, Opened, each_its_split

pytestmark = pytest.mark.verifiers


def played(
    world: VerifiersWorld, turns: list[str], number: int = 0, split: Split = "train"
) -> tuple[str, list[Observation], Evaluation]:
    """Play the turns of a task; return its prompt, what was seen and the verdict."""
    task = world.tasks(split)[number]
    with closing(world.open(task.task_id, 3)) as episode:
        seen: list[Observation] = []
        for turn in turns:
            seen.append(episode.step(turn))
            if seen[-1].done:
                break
        return "\n".join(message["content"] for message in episode.prompt), seen, episode.evaluate()


def test_the_rubric_of_one_turn_is_return_and_success(opened: Opened) -> None:
    world = opened("sums", solution="turns", solved=0.9)
    task = world.tasks("train")[0]
    prompt, seen, verdict = played(world, world.demonstration(task.task_id))
    assert prompt.startswith("You add numbers.\nWhat is ") and task.instruction in prompt
    assert [one.done for one in seen] == [True] and verdict.success and verdict.score == 1
    for turn, rewards in (("<answer>-1</answer>", 0.1), ("no idea", 0.0)):
        _, (only,), verdict = played(world, [turn])
        assert only.done and not verdict.success and verdict.score == pytest.approx(rewards)
        assert f"in_tags {rewards:g}" in verdict.failed[0]


def test_the_environments_own_user_answers_each_turn(opened: Opened) -> None:
    world = opened("guessing", solution="turns", settings={"taskset": {"most": 8}})
    (answer,) = world.demonstration(world.tasks("train")[0].task_id)
    low = str(int(answer) - 1)
    _, seen, verdict = played(world, ["what?", low, answer])
    assert [re.sub(r" \(.*", "", one.text) for one in seen] == ["no number", "higher", "The episode is over."]
    assert [one.done for one in seen] == [False, False, True] and verdict.success


def test_a_game_of_guesses_is_a_solution_that_ends_in_time(opened: Opened) -> None:
    world = opened("guessing", solution="turns", max_turns=4, settings={"taskset": {"most": 16, "guesses": 4}})
    games = [world.demonstration(task.task_id) for task in world.tasks("train")]
    assert all(played(world, game, number)[2].success for number, game in enumerate(games))
    assert max(map(len, games)) in (2, 3, 4) and len({tuple(game) for game in games}) == len(games)


def test_the_last_letter_alone_is_the_answer(opened: Opened) -> None:
    world = opened("letters", solution="answer")
    task = world.tasks("train")[0]
    (last,) = world.demonstration(task.task_id)
    others = re.findall(r"\b[a-z]\b", task.instruction)[:-1]
    assert len(others) == 2 and last not in others
    assert played(world, [last])[2].success
    assert not any(played(world, [letter])[2].success for letter in others)


def test_the_worlds_limit_of_turns_is_the_environments(opened: Opened) -> None:
    _, seen, verdict = played(opened("guessing", max_turns=3), ["0"] * 9)
    assert [one.done for one in seen] == [False, False, True] and verdict.score == 0


@pytest.mark.parametrize("calls", ["json", "hermes"])
def test_tools_answer_calls_and_keep_the_state_of_the_rollout(opened: Opened, calls: str) -> None:
    world = opened("store", solution="turns", calls=calls)
    turns = world.demonstration(world.tasks("train")[0].task_id)
    prompt, seen, verdict = played(world, turns)
    assert '"name": "order"' in prompt and '"required": ["item", "amount"]' in prompt
    assert [one.api_calls for one in seen] == [("store.price",), ("store.order",), ()]
    assert [one.done for one in seen] == [False, False, True] and verdict.success
    other = world.tasks("train")[1].task_id
    assert world.demonstration(other) != turns
    assert not played(world, turns, number=1)[2].success, "an episode keeps its own state"


def test_a_call_that_cannot_be_made_is_answered(opened: Opened) -> None:
    world = opened("store", solution="turns")
    wrong = [
        '```json\n{"name": "price", "arguments": {"item": "moon"}}\n```',
        '```json\n{"name": "steal", "arguments": {}}\n```',
        '```json\n{"name": "order", "arguments": {"item": "apple", "amount": "many"}}\n```',
        '```json\n{"name": "order", \n```',
    ]
    _, seen, verdict = played(world, wrong)
    said = ["there is no moon", "unknown tool 'steal'", "amount", "resend the call with valid JSON"]
    assert all(part in one.text for part, one in zip(said, seen, strict=True)), [one.text for one in seen]
    assert all(one.failed and not one.done for one in seen) and not verdict.success
    assert [one.failed_api_calls for one in seen[:3]] == [("store.price",), ("store.steal",), ("store.order",)]


GUESSES = {
    "GuessTheNumber-v0": ["[3]", "[17]"],
    "Mastermind-v0": ["[1 2 3 4]", "[4 3 2 1]"],
    "TowerOfHanoi-v0": ["[A C]", "[A B]"],
}


@pytest.mark.parametrize("game", GUESSES)
def test_games_of_a_package_are_played_by_the_env_that_verifiers_brings(opened: Opened, game: str) -> None:
    world = opened("arena", packages=GAMES, splits=each_its_split([{"taskset": {"game": name}} for name in GUESSES]))
    split = SPLITS[[*GUESSES].index(game)]
    prompt, seen, verdict = played(world, GUESSES[game], split=split)
    assert len(prompt) > 200 and [one.done for one in seen] == [False, False], [one.text for one in seen]
    assert all(one.text for one in seen) and not verdict.success
    assert json.dumps(played(world, GUESSES[game], split=split)[1], default=str) == json.dumps(seen, default=str)
