"""The conversation around a game, on Sokoban: rewards, penalties and limits by hand."""

import pytest

from tasks.core.text_games.world import TextGameWorld
from tasks.core.worlds.sokoban.kind import SokobanConfig
from tasks.core.worlds.sokoban.world import SokobanKind, SokobanTask

ROOM = "#####\n#PXO#\n#___#\n#####"


def play(*turns: str, **rules: object):
    task = SokobanTask(task_id="a", scenario_id="a", difficulty=1, split="dev", room=ROOM, solution="R")
    config = SokobanConfig(**rules)
    episode = TextGameWorld({"dev": [task]}, SokobanKind(config), config).open("a", 0)
    return episode, [episode.step(turn) for turn in turns]


def say(actions: str) -> str:
    return f"<think>x</think><answer>{actions}</answer>"


def test_a_turn_earns_what_its_actions_earn() -> None:
    episode, (first, last) = play(say("Down || up"), say("Right || Down"))
    assert first.reward == pytest.approx(-0.2)
    assert (last.reward, last.done) == (pytest.approx(10.9), True)
    assert last.api_calls == ("sokoban.Right",)
    verdict = episode.evaluate()
    assert verdict.success
    lowest, highest = -0.1 * 10 - 0.1 * 5, 10 + 2 - 0.1
    assert verdict.score == pytest.approx((-0.2 + 10.9 - lowest) / (highest - lowest))


def test_the_observation_is_reward_state_and_what_is_left() -> None:
    _, (seen,) = play(say("Down"))
    assert seen.text == "Reward:\n-0.1\n\nTurn 2:\nState:\n#####\n#_XO#\n#P__#\n#####\n"
    assert seen.ending.startswith("You have 9 actions left. Always output: <think> [your thoughts] </think> <answer>")


@pytest.mark.parametrize(
    ("turn", "reward", "played", "failed"),
    [
        ("Right", -0.1, 0, True),
        (say("Fly"), -0.1, 0, True),
        (say("Fly || Down || Jump"), -0.2, 1, True),
        (say("Down || Up || Down || Up || Down || Right"), -0.5, 5, False),
        (say("Down") + say("Right"), -0.1, 1, False),
        ("", -0.1, 0, True),
    ],
)
def test_what_cannot_be_read_costs_the_penalty_once_and_the_rest_is_played(
    turn: str, reward: float, played: int, failed: bool
) -> None:
    _, (seen,) = play(turn)
    assert seen.reward == pytest.approx(reward)
    assert (len(seen.api_calls), seen.failed) == (played, failed)


@pytest.mark.parametrize(
    ("actions", "reward", "limits"), [("Right || Fly", 10.8, {}), ("Down || Fly", -0.2, {"max_actions": 1})]
)
def test_what_is_no_action_costs_the_penalty_behind_the_end_too(
    actions: str, reward: float, limits: dict[str, int]
) -> None:
    _, (seen,) = play(say(actions), **limits)
    assert (seen.reward, seen.failed, seen.done, len(seen.api_calls)) == (pytest.approx(reward), True, True, 1)


def test_an_action_without_effect_is_told_apart() -> None:
    _, (seen,) = play(say("Left || Down"))
    assert (seen.api_calls, seen.failed_api_calls) == (("sokoban.Left", "sokoban.Down"), ("sokoban.Left",))


def test_the_world_ends_at_its_own_limits() -> None:
    episode, seen = play(*["nonsense"] * 3, max_turns=3)
    assert [turn.done for turn in seen] == [False, False, True]
    assert episode.evaluate().score == pytest.approx((-0.3 + 1 + 0.3) / (11.9 + 1 + 0.3))
    _, seen = play(say("Down || Up || Down"), say("Up || Right"), max_actions=4)
    assert [turn.done for turn in seen] == [False, True]
    assert seen[-1].api_calls == ("sokoban.Up",)
    after = episode.step(say("Right"))
    assert (after.done, after.reward, episode.evaluate().success) == (True, 0.0, False)


def test_thinking_is_a_knob_of_prompt_and_reading() -> None:
    episode, (seen,) = play("<answer>Right</answer>", thinking=False)
    assert "<think>" not in episode.prompt[1]["content"]
    assert seen.done and not seen.failed
