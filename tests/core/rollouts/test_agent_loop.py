"""One episode by itself: what it asks for, and that it is closed however it ends."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tasks.core.interfaces.engine import Generation, GenerationRequest
from tasks.core.interfaces.world import WorldFault
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.rollouts.episode import EpisodeEnd, EpisodeSteps, LiveRollout, play_episode
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts

Begin = Callable[[Any], tuple[LiveRollout, EpisodeSteps]]


@pytest.fixture
def begin(chat: ChatFormat, settings: PlaySettings) -> Begin:
    def begun(world: Any) -> tuple[LiveRollout, EpisodeSteps]:
        rollout = LiveRollout(plan_rollouts(world.tasks("train"), 1, seed=3)[0])
        return rollout, play_episode(rollout, world, chat, settings)

    return begun


def say(request: GenerationRequest, chat: ChatFormat, text: str) -> Generation:
    """The turn that a policy with these words would have sampled."""
    ids = tuple(chat.turn_ids(text))
    return Generation(request.sequence_id, ids, (0.0,) * len(ids), "stop")


def test_an_episode_asks_for_turns_until_the_world_says_that_it_is_over(
    game: Callable[..., Any], begin: Begin, chat: ChatFormat
) -> None:
    world = game()
    rollout, steps = begin(world)
    first = next(steps)
    assert chat.decode(first.prompt_ids).count("Task t0.") == 1 and len(first.messages) == 1
    second = steps.send(say(first, chat, "xyz"))
    assert list(second.prompt_ids[: len(first.prompt_ids)]) == list(first.prompt_ids)
    assert [message["content"] for message in second.messages[1:]] == ["xyz", "3 named\n"]
    assert second.seed != first.seed
    with pytest.raises(StopIteration) as over:
        steps.send(say(second, chat, "a"))
    end: EpisodeEnd = over.value.value
    assert end.end_reason == "completed" and end.evaluation is not None and end.evaluation.success
    assert world.open_now == 0 and rollout.transcript.played_turns == 2


def test_turns_are_sampled_as_the_settings_say(
    game: Callable[..., Any], chat: ChatFormat, settings: PlaySettings
) -> None:
    world = game()
    for chosen in (settings, replace(settings, top_k=20, top_p=0.95)):
        rollout = LiveRollout(plan_rollouts(world.tasks("train"), 1, seed=3)[0])
        steps = play_episode(rollout, world, chat, chosen)
        sampling = next(steps).sampling
        assert (sampling.temperature, sampling.top_k, sampling.top_p) == (
            chosen.temperature,
            chosen.top_k,
            chosen.top_p,
        )
        steps.close()


def test_a_turn_for_which_there_was_no_room_ends_the_episode_with_a_verdict(
    game: Callable[..., Any], begin: Begin
) -> None:
    world = game()
    _, steps = begin(world)
    request = next(steps)
    with pytest.raises(StopIteration) as over:
        steps.send(Generation(request.sequence_id, (), (), "context"))
    assert over.value.value.end_reason == "context_limit" and over.value.value.evaluation is not None
    assert world.open_now == 0


def test_an_episode_that_is_given_up_is_closed(game: Callable[..., Any], begin: Begin) -> None:
    world = game()
    _, steps = begin(world)
    next(steps)
    assert world.open_now == 1
    steps.close()
    assert world.open_now == 0


@pytest.mark.parametrize(
    ("faults", "error"), [({"unopenable": ["t0"]}, WorldFault), ({"broken": ["t0"]}, ZeroDivisionError)]
)
def test_an_error_of_the_world_closes_the_episode_and_is_raised(
    game: Callable[..., Any], begin: Begin, chat: ChatFormat, faults: dict[str, list[str]], error: type[Exception]
) -> None:
    world = game(**faults)
    _, steps = begin(world)
    with pytest.raises(error):
        steps.send(say(next(steps), chat, "x"))
    assert world.open_now == 0
