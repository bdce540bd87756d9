import dataclasses
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2ForCausalLM

from tasks.core.config.collection import AgentLimits, EarlyStop
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import Generation
from tasks.core.interfaces.world import World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.recital import ScriptedEngine
from tasks.core.records.schemas import PLAYED_ROLLOUTS
from tasks.core.records.tables import table_of, validate
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import BASE_DIGEST, play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats

Row = dict[str, Any]
Game = Callable[..., Any]


def plan(world: World, rollouts: int = 4, seed: int = 3) -> list[PlannedRollout]:
    return plan_rollouts(world.tasks("train"), rollouts, seed)


@pytest.fixture
def play(engine: TransformersEngine, chat: ChatFormat, settings: PlaySettings) -> Callable[..., list[Row]]:
    """Play a game; whatever happens, every row is valid and no episode is left open."""

    def run(world: Any, planned: list[PlannedRollout] | None = None, **changes: Any) -> list[Row]:
        stats = changes.pop("stats", None)
        played = play_rollouts(
            world,
            changes.pop("engine", engine),
            chat,
            plan(world) if planned is None else planned,
            dataclasses.replace(settings, **changes),
            policy=None,
            stats=stats,
        )
        validate(table_of(played, PLAYED_ROLLOUTS), PLAYED_ROLLOUTS, Path("rollouts.parquet"))
        assert world.open_now == 0
        return played

    return run


def turns_of(row: Row) -> list[list[int]]:
    turns: list[list[int]] = [[] for _ in row["turns"]]
    for token, turn in zip(row["token_ids"], row["turn_index"], strict=True):
        if turn >= 0:
            turns[turn].append(token)
    return turns


def test_every_planned_rollout_has_a_row_in_order(game: Game, play: Callable[..., list[Row]]) -> None:
    world, stats = game(), CollectionStats()
    rows = play(world, stats=stats)
    expected = sorted((planned.task.task_id, planned.rollout_index) for planned in plan(world))
    assert [(row["task_id"], row["rollout_index"]) for row in rows] == expected
    assert {row["adapter_digest"] for row in rows} == {BASE_DIGEST}
    assert {row["end_reason"] for row in rows} == {"completed", "turn_limit"}
    assert stats.end_reasons == Counter(row["end_reason"] for row in rows)
    not_kept = stats.generated_tokens - sum(sum(row["policy_mask"]) for row in rows)
    assert 0 < not_kept < sum(len(row["turns"]) for row in rows), "turns that the policy stopped by opening the next"
    assert stats.timings().tokens_per_s > 0


class RestartedEngine(ScriptedEngine):
    """Proves a delivery when it is given its policy, and once more after a server came back."""

    def load_adapter(self, path: Path | None) -> None:
        super().load_adapter(path)
        self.proven = [{"after": "start"}]

    def collect(self) -> list[Generation]:
        if len(self.proven) < 2:
            self.proven.append({"after": "restart"})
        return super().collect()

    def take_deliveries(self) -> list[dict[str, Any]]:
        taken, self.proven = self.proven, []
        return taken


def test_all_deliveries_are_told_by_the_collection_that_they_were_proven_in(
    game: Game, play: Callable[..., list[Row]], chat: ChatFormat
) -> None:
    stats = CollectionStats()
    play(game(), engine=RestartedEngine("scripted", chat, lambda task, seed: ["a"]), stats=stats)
    assert stats.deliveries == [{"after": "start"}, {"after": "restart"}]


def test_token_ids_are_the_conversation_as_it_was_played(
    game: Game, play: Callable[..., list[Row]], chat: ChatFormat
) -> None:
    world = game()
    rows = play(world)
    for row in rows:
        episode = world.open(row["task_id"], 0)
        ids, turns = chat.prompt_ids(episode.prompt), turns_of(row)
        for number, turn in enumerate(turns):
            ids += turn
            closed = turn[-1] == chat.stop_ids[0]
            observation = episode.step(chat.decode(turn))
            assert observation.done == (number == len(turns) - 1 and row["end_reason"] == "completed")
            if number < len(turns) - 1:
                ids += chat.continuation_ids(observation.text, closed=closed)
        assert ids == row["token_ids"]
        evaluation = episode.evaluate()
        assert (row["tests_passed"], row["tests_failed"]) == (list(evaluation.passed), list(evaluation.failed))
        ended = row["end_reason"] == "completed"
        assert (row["return"], row["success"]) == ((evaluation.pass_share, evaluation.success) if ended else (0, False))
        episode.close()
    assert max(len(row["turns"]) for row in rows) > 2
    assert {row["return"] for row in rows} >= {0.5, 1.0}


def test_a_graded_world_says_what_turns_earn_and_what_an_episode_returns(
    game: Game, play: Callable[..., list[Row]], chat: ChatFormat
) -> None:
    rows = play(game(graded=True))
    for row in rows:
        named = np.cumsum([len(chat.decode([t for t in turn if t not in chat.stop_ids])) for turn in turns_of(row)])
        assert row["turn_rewards"] == named.tolist()
        assert row["return"] == (0.125 if row["end_reason"] == "completed" else 0.0)
    assert max(len(row["turn_rewards"]) for row in rows) > 1
    assert all("turn_rewards" not in row for row in play(game()))


def test_openers_and_ends_of_turns_alternate_however_turns_stopped(
    game: Game, play: Callable[..., list[Row]], chat: ChatFormat
) -> None:
    end, opener = chat.stop_ids
    for row in play(game()):
        marks = [token for token in row["token_ids"] if token in chat.stop_ids]
        lone = [turn for turn in turns_of(row) if turn == [opener]]
        assert lone or marks == ([opener, end] * len(marks))[: len(marks)]
        assert opener not in [token for turn in turns_of(row) for token in turn] or lone


def test_logprobs_are_the_learners(game: Game, play: Callable[..., list[Row]], model: Qwen2ForCausalLM) -> None:
    for row in play(game()):
        ids, mask = torch.tensor(row["token_ids"]), torch.tensor(row["policy_mask"])
        with torch.inference_mode():
            full = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        found = torch.tensor(row["engine_logprobs"])
        assert torch.allclose(found[1:][mask[1:]], full[mask[1:]], atol=1e-4)


def test_limits_of_turns_tokens_and_observations_hold(game: Game, play: Callable[..., list[Row]]) -> None:
    limits = AgentLimits(max_turns=2, max_tokens_per_turn=5, max_observation_tokens=40)
    rows = play(game(chatter=30), limits=limits)
    assert max(len(row["turns"]) for row in rows) == 2
    assert all(len(turn) <= 5 for row in rows for turn in turns_of(row))
    prompt = next(row["policy_mask"].index(True) for row in rows)
    longest = max(len(row["token_ids"]) for row in rows)
    assert prompt + 10 < longest <= prompt + 5 + 40 + 60 + 5


def test_an_observations_ending_survives_the_cut(game: Game, play: Callable[..., list[Row]], chat: ChatFormat) -> None:
    limits = AgentLimits(max_turns=3, max_tokens_per_turn=5, max_observation_tokens=60)
    rows = play(game(chatter=30, ending="(Go on.)"), limits=limits)
    seen = [chat.decode(row["token_ids"]) for row in rows]
    assert sum(text.count("[output cut: ") for text in seen) > 3
    cut_and_whole = r"lines left out\][^\[]*\(Go on\.\)"
    assert all(len(re.findall(cut_and_whole, text)) == text.count("[output cut: ") for text in seen)


def test_a_conversation_that_outgrows_the_context_ends(
    game: Game, play: Callable[..., list[Row]], short_engine: TransformersEngine
) -> None:
    rows = play(game(chatter=3), engine=short_engine)
    over = [row for row in rows if row["end_reason"] == "context_limit"]
    assert over and all(row["return"] == 0 and not row["success"] for row in over)
    assert all(row["policy_mask"][-1] and row["tests_passed"] for row in over)
    assert max(len(row["token_ids"]) for row in rows) <= short_engine.context_length


@pytest.mark.parametrize("judged", [True, False])
def test_unfinished_episodes_count_where_they_are_judged(
    game: Game, play: Callable[..., list[Row]], judged: bool
) -> None:
    rows = [row for row in play(game(), judge_unfinished=judged) if row["end_reason"] == "turn_limit"]
    shares = [len(row["tests_passed"]) / len(row["tests_passed"] + row["tests_failed"]) for row in rows]
    assert {0.5, 1.0} <= set(shares)
    assert [row["return"] for row in rows] == [share if judged else 0.0 for share in shares]
    assert [row["success"] for row in rows] == [judged and share == 1.0 for share in shares]


def test_no_more_episodes_are_open_than_allowed(game: Game, play: Callable[..., list[Row]]) -> None:
    world = game()
    few = play(world, max_concurrent_episodes=3)
    assert world.most_open <= 3
    many = play(game())
    assert [(row["task_id"], row["token_ids"]) for row in few] == [(row["task_id"], row["token_ids"]) for row in many]


def test_the_clock_changes_nothing(game: Game, play: Callable[..., list[Row]], monkeypatch: pytest.MonkeyPatch) -> None:
    smooth = play(game())
    world = game()
    original = world.open

    def hesitant(task_id: str, seed: int) -> Any:
        time.sleep((seed % 7) / 500)
        return original(task_id, seed)

    monkeypatch.setattr(world, "open", hesitant)
    assert play(world) == smooth


def test_early_stop_keeps_enough_of_every_task_and_records_the_rest(game: Game, play: Callable[..., list[Row]]) -> None:
    world = game()
    rows = play(
        world, plan(world, rollouts=6), max_concurrent_episodes=9, early_stop=EarlyStop(min_per_task=3, share=0.5)
    )
    finished = Counter(row["task_id"] for row in rows if row["end_reason"] != "cut_by_early_stop")
    cut = [row for row in rows if row["end_reason"] == "cut_by_early_stop"]
    assert len(rows) == 36 and finished.total() >= 18 and min(finished.values()) >= 3
    assert cut and all(row["return"] == 0 and row["tests_passed"] == [] for row in cut)
    assert all(row["token_ids"] == [] for row in cut)
    kept = [row for row in rows if row["end_reason"] != "cut_by_early_stop"]
    one_at_a_time = play(
        game(), plan(world, rollouts=6), max_concurrent_episodes=1, early_stop=EarlyStop(min_per_task=3, share=0.5)
    )
    assert one_at_a_time == rows and kept


def test_early_stop_waits_for_the_share(game: Game, play: Callable[..., list[Row]]) -> None:
    rows = play(game(), early_stop=EarlyStop(min_per_task=2, share=1.0))
    assert "cut_by_early_stop" not in {row["end_reason"] for row in rows}


def test_a_world_fault_is_played_again_with_another_seed(game: Game, play: Callable[..., list[Row]]) -> None:
    stats = CollectionStats()
    rows = [row for row in play(game(brittle=["t1"]), world_retries=20, stats=stats) if row["task_id"] == "t1"]
    assert {row["end_reason"] for row in rows} <= {"completed", "turn_limit"}
    assert stats.world_retries == sum(row["world_retries"] for row in rows) > 0


def test_a_world_that_keeps_failing_loses_the_rollout_openly(
    game: Game, play: Callable[..., list[Row]], caplog: pytest.LogCaptureFixture
) -> None:
    stats = CollectionStats()
    rows = play(game(unopenable=["t1"]), world_retries=2, stats=stats)
    lost = [row for row in rows if row["end_reason"] == "world_fault"]
    assert {(row["task_id"], row["world_retries"], row["return"]) for row in lost} == {("t1", 2, 0.0)}
    assert len(lost) == 4 and len(rows) == 24
    assert stats.timings().world_faults == {"no table is free": 4 * 3}
    (said,) = caplog.messages
    assert said.endswith(": a world fault: no table is free")


def test_a_fault_of_one_task_leaves_the_others_alone(game: Game, play: Callable[..., list[Row]]) -> None:
    def others(rows: list[Row]) -> list[tuple[str, list[int]]]:
        return [(row["task_id"], row["token_ids"]) for row in rows if row["task_id"] != "t1"]

    assert others(play(game(unopenable=["t1"]))) == others(play(game()))


def test_code_that_had_to_be_killed_ends_the_episode_without_return(game: Game, play: Callable[..., list[Row]]) -> None:
    rows = [row for row in play(game(endless=["t2"])) if row["task_id"] == "t2"]
    assert {(row["end_reason"], row["return"], len(row["turns"])) for row in rows} == {("execution_timeout", 0.0, 1)}
    assert all(row["turns"][0]["failed"] and row["policy_mask"][-1] for row in rows)


def test_a_bug_of_the_world_closes_everything_and_names_the_task(
    game: Game, play: Callable[..., list[Row]], engine: TransformersEngine
) -> None:
    world = game(broken=["t3"])
    with pytest.raises(ZeroDivisionError) as caught:
        play(world)
    assert any("task t3" in note for note in caught.value.__notes__)
    assert world.open_now == 0
    assert engine.collect() == []


def test_the_seed_of_the_plan_decides(game: Game, play: Callable[..., list[Row]]) -> None:
    world = game()
    assert play(world, plan(world, seed=1)) == play(world, plan(world, seed=1))
    assert play(world, plan(world, seed=1)) != play(world, plan(world, seed=2))


def test_a_rollout_planned_twice_is_refused(game: Game, play: Callable[..., list[Row]]) -> None:
    world = game()
    with pytest.raises(ValueError, match="planned twice"):
        play(world, [*plan(world), *plan(world)[:1]])
