"""Ends, scores and rewards of an episode, by hand: a session that answers what the simulator was seen to answer."""

from typing import Any

import pytest

from tasks.core.text_games.prompt import answer_text
from tasks.core.worlds.scienceworld.episode import ScienceEpisode
from tasks.core.worlds.scienceworld.settings import ScienceWorldConfig

CONFIG = ScienceWorldConfig()


def seen(score: float = 0.0, moves: int = 0, completed: bool = False, text: str = "Done.") -> dict[str, Any]:
    return {"text": text, "score": score, "moves": moves, "completed": completed}


class Played:
    """A session that was recorded."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.opening = {"description": "Boil water.", **seen(text="This room is called the kitchen.")}
        self.answers, self.actions = list(answers), []

    def step(self, action: str) -> dict[str, Any]:
        self.actions.append(action)
        return self.answers.pop(0)

    def close(self) -> None:
        pass


def turn(action: str) -> str:
    return answer_text([action], "So be it.")


def test_rewards_are_what_a_turn_added_to_the_score() -> None:
    episode = ScienceEpisode(Played(seen(0.124), seen(0.126), seen(1.0, completed=True)), CONFIG)
    observed = [episode.step(turn("open door")) for _ in range(3)]
    assert [one.reward for one in observed] == [0.12, 0.01, 0.87]
    assert [one.done for one in observed] == [False, False, True]
    assert episode.evaluate().success and episode.evaluate().score == 1


def test_a_wrong_focus_ends_the_episode_with_nothing() -> None:
    episode = ScienceEpisode(Played(seen(0.5), seen(-1.0)), CONFIG)
    episode.step(turn("open door"))
    observed = episode.step(turn("focus on door"))
    assert observed.done and observed.reward == -1.5
    assert not episode.evaluate().success and episode.evaluate().episode_return == 0


@pytest.mark.parametrize(("moves", "done"), [(100, False), (101, True)])
def test_the_official_limit_ends_it(moves: int, done: bool) -> None:
    assert ScienceEpisode(Played(seen(0.25, moves)), CONFIG).step(turn("wait1")).done is done
    unlimited = CONFIG.model_copy(update={"max_moves": None})
    assert not ScienceEpisode(Played(seen(0.25, moves)), unlimited).step(turn("wait1")).done


def test_turns_that_are_no_action_never_reach_the_simulator_and_end_too() -> None:
    session = Played()
    episode = ScienceEpisode(session, CONFIG.model_copy(update={"max_turns": 3}))
    observed = [episode.step(text) for text in ("", "<answer>wait", turn("x" * 301))]
    assert session.actions == []
    assert all(one.failed and one.reward == 0 and one.api_calls == () for one in observed)
    assert [one.done for one in observed] == [False, False, True]
    assert episode.step(turn("wait")).done and session.actions == []


def test_only_the_first_action_is_played() -> None:
    session = Played(seen())
    assert ScienceEpisode(session, CONFIG).step(turn("wait1 || eat apple")).api_calls == ("scienceworld.wait1",)
    assert session.actions == ["wait1"]


def test_what_the_simulator_does_not_understand_is_a_failed_turn() -> None:
    answer = seen(text="No known action matches that input.")
    observed = ScienceEpisode(Played(answer), CONFIG).step(turn("fly"))
    assert observed.failed and observed.api_calls == () and not observed.done
