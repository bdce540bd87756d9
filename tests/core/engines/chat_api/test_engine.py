"""Models behind an API through the real agent loop, on pocketworld in its sandbox."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.core.chat_servers.answers import ChatApiError
from tasks.core.chat_servers.settings import ChatApiConfig
from tasks.core.config.collection import AgentLimits
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.chat_api.engine import ChatApiEngine
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import GenerationRequest, Metered, SamplingSettings
from tasks.core.interfaces.engine_kind import find_engine
from tasks.core.interfaces.world import Demonstrating, World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model
from tasks.core.records.schemas import PLAYED_ROLLOUTS
from tasks.core.records.tables import table_of, validate
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts

SHIPPED = Path(__file__).parents[4] / "data" / "base_policies" / "pocket"
SAMPLING = SamplingSettings(temperature=0.0, max_tokens=128, stop_ids=())
Open = Callable[..., ChatApiEngine]


@pytest.fixture
def open_engine(chat: ChatFormat, configured: Callable[..., Any]) -> Iterator[Open]:
    engines = []

    def opened(server: Any, **changes: Any) -> ChatApiEngine:
        engines.append(ChatApiEngine(configured(server, **changes), chat))
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


def play(
    world: World, chat: ChatFormat, engine: Any, tasks: int = 6, turns: int = 12, temperature: float = 0.0
) -> list[dict[str, Any]]:
    settings = PlaySettings(temperature, AgentLimits(max_turns=turns, max_tokens_per_turn=128), 8, 0)
    planned = plan_rollouts(world.tasks("dev")[:tasks], 1, seed=5)
    rows = play_rollouts(world, engine, chat, planned, settings, policy=None)
    validate(table_of(rows, PLAYED_ROLLOUTS), PLAYED_ROLLOUTS, Path("rollouts.parquet"))
    return rows


def recited(world: World) -> Callable[[dict[str, Any]], tuple[str, str]]:
    """A server's reply that knows the solution of the task whose instruction it is shown."""
    assert isinstance(world, Demonstrating)
    solutions = {task.instruction: world.demonstration(task.task_id) for task in world.tasks("dev")}

    def reply(body: dict[str, Any]) -> tuple[str, str]:
        said = body["messages"]
        turns = next(turns for instruction, turns in solutions.items() if instruction in said[1]["content"])
        return turns[sum(message["role"] == "assistant" for message in said)], "stop"

    return reply


def sampled_by(model_folder: Path, chat: ChatFormat) -> Callable[[dict[str, Any]], tuple[str, str]]:
    """The embedded policy behind the protocol: greedy, one conversation at a time."""
    engine = TransformersEngine(load_base_model(model_folder, PolicyConfig(device="cpu")))
    lock = threading.Lock()

    def reply(body: dict[str, Any]) -> tuple[str, str]:
        settings = SamplingSettings(body["temperature"], body["max_tokens"], chat.stop_ids)
        with lock:
            engine.submit(GenerationRequest("one", chat.prompt_ids(body["messages"]), settings, body["seed"]))
            (turn,) = engine.collect()
            engine.release("one")
        ids = turn.token_ids[:-1] if turn.stop_reason == "stop" else turn.token_ids
        return chat.decode(ids), turn.stop_reason

    return reply


def test_a_model_that_knows_all_solves_all(
    world: World, chat: ChatFormat, serve: Callable[..., Any], open_engine: Open
) -> None:
    server = serve(recited(world))
    engine = open_engine(server, concurrency=3)
    rows = play(world, chat, engine)
    assert [row["success"] for row in rows] == [True] * 6
    assert {row["engine"] for row in rows} == {"chat_api"}
    assert {row["engine_version"] for row in rows} == {f"tiny at 127.0.0.1:{server.url.split(':')[2].split('/')[0]}"}
    assert {value for row in rows for value in row["engine_logprobs"]} == {0.0}
    assert server.most_under_way <= 3


def test_the_embedded_policy_behind_an_api_plays_as_it_does_in_process(
    world: World, chat: ChatFormat, serve: Callable[..., Any], open_engine: Open
) -> None:
    """Greedy turns, asked for by messages and sampled from ids, are the same episodes to the last token."""
    direct = play(world, chat, TransformersEngine(load_base_model(SHIPPED, PolicyConfig(device="cpu"))))
    behind = play(world, chat, open_engine(serve(sampled_by(SHIPPED, chat))))
    for column in ("token_ids", "policy_mask", "turn_index", "return", "end_reason", "turns"):
        assert [row[column] for row in behind] == [row[column] for row in direct], column


def test_faults_on_the_way_change_nothing_but_the_count_of_retries(
    world: World, chat: ChatFormat, serve: Callable[..., Any], open_engine: Open
) -> None:
    server = serve(recited(world))
    server.refuse(429, retry_after="0.05")
    server.fail(status=500)
    server.fail(body=b'{"choices"', cut=True)
    engine = open_engine(server, prompt_price=2.0, cached_price=1.0, answer_price=10.0)
    rows = play(world, chat, engine)
    assert all(row["success"] for row in rows)
    assert isinstance(engine, Metered)
    usage = engine.take_usage()
    turns = sum(len(row["turns"]) for row in rows)
    assert (usage.models, usage.answers, usage.retries) == (("tiny-dated",), turns, 3)
    assert (usage.prompt_tokens, usage.cached_tokens, usage.answer_tokens) == (100 * turns, 40 * turns, 10 * turns)
    assert usage.cost_usd == pytest.approx(turns * (60 * 2 + 40 * 1 + 10 * 10) / 1e6)
    assert engine.take_usage().answers == 0


def test_a_play_that_failed_goes_on_where_it_was(
    world: World,
    chat: ChatFormat,
    serve: Callable[..., Any],
    open_engine: Open,
    configured: Callable[..., ChatApiConfig],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second attempt asks only for what is missing; rows and usage are those of a play that nothing disturbed."""
    server = serve(recited(world))
    settings = configured(server)
    undisturbed = open_engine(server, prompt_price=2.0)
    rows, usage = play(world, chat, undisturbed, temperature=0.5), undisturbed.take_usage()
    find_engine("chat_api").forget(settings, [task.task_id for task in world.tasks("dev")])
    turns = len(server.requests)
    server.requests.clear()

    server.answers_left = 5
    with pytest.raises(ChatApiError, match="quota is used up") as caught:
        play(world, chat, open_engine(server, prompt_price=2.0, concurrency=1), temperature=0.5)
    assert caught.value.__notes__ == [
        "so far: 5 answers, 500 prompt and 50 answer tokens, 0.00 USD, kept for the next run"
    ]
    server.requests.clear()

    server.answers_left = None
    again = open_engine(server, prompt_price=2.0)
    assert (play(world, chat, again, temperature=0.5), again.take_usage()) == (rows, usage)
    assert len(server.requests) == turns - 5
    assert "an earlier attempt had paid for 5 answers, 500 prompt and 50 answer tokens" in capsys.readouterr().out
    find_engine("chat_api").forget(settings, [task.task_id for task in world.tasks("dev")])
    play(world, chat, again, temperature=0.5)
    assert len(server.requests) == 2 * turns - 5, "once the result is written, a new one is played anew"


def test_the_result_of_another_model_leaves_the_answers_of_this_one(
    world: World,
    chat: ChatFormat,
    serve: Callable[..., Any],
    open_engine: Open,
    configured: Callable[..., ChatApiConfig],
) -> None:
    server = serve(recited(world))
    play(world, chat, open_engine(server), temperature=0.5)
    find_engine("chat_api").forget(configured(server, model="another"), [task.task_id for task in world.tasks("dev")])
    server.requests.clear()
    play(world, chat, open_engine(server), temperature=0.5)
    assert server.requests == [], "they are paid for, and the attempt of this model goes on"


def test_an_answer_that_is_under_way_at_the_end_is_kept(serve: Callable[..., Any], open_engine: Open) -> None:
    asked, answering = threading.Event(), threading.Event()

    def reply(body: dict[str, Any]) -> tuple[str, str]:
        asked.set()
        answering.wait(60)
        return "hi", "stop"

    server = serve(reply)
    request = GenerationRequest("one", [1], SAMPLING, 0, messages=[{"role": "user", "content": "hi"}])
    engine = open_engine(server)
    engine.submit(request)
    assert asked.wait(60)
    engine.release("one")
    threading.Timer(0.2, answering.set).start()
    engine.close()
    again = open_engine(server)
    again.submit(request)
    while not again.collect():
        pass
    assert len(server.requests) == 1


def test_a_wrong_key_ends_the_play_with_one_error_and_closes_all_episodes(
    world: World, chat: ChatFormat, server: Any, open_engine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPLINE_TEST_KEY", "sk-wrong")
    engine = open_engine(server, concurrency=1)
    with pytest.raises(ChatApiError, match="refused the key") as caught:
        play(world, chat, engine)
    assert caught.value.__notes__ == [
        "so far: 0 answers, 0 prompt and 0 answer tokens, 0.00 USD, kept for the next run"
    ]
    assert engine.collect() == []


def test_a_context_that_the_server_finds_full_ends_the_episode(
    world: World, chat: ChatFormat, server: Any, open_engine: Open
) -> None:
    server.refuse(400, "too long", "context_length_exceeded")
    (row,) = play(world, chat, open_engine(server), tasks=1)
    assert (row["end_reason"], row["return"], row["turns"]) == ("context_limit", 0.0, [])


def test_a_turn_that_is_cut_or_empty_still_counts_as_a_turn(
    world: World, chat: ChatFormat, serve: Callable[..., Any], open_engine: Open
) -> None:
    """Hidden reasoning may use up a turn's tokens: without this, such an episode would never end."""
    replies = iter([("", "length"), ("x = 1", "length"), ("", "stop")])
    rows = play(world, chat, open_engine(serve(lambda body: next(replies))), tasks=1, turns=3)
    assert (rows[0]["end_reason"], len(rows[0]["turns"]), max(rows[0]["turn_index"])) == ("turn_limit", 3, 2)


def test_special_tokens_in_an_answer_are_made_inert(
    chat: ChatFormat, serve: Callable[..., Any], open_engine: Open
) -> None:
    special = "<|im_end|>"
    engine = open_engine(serve(lambda body: (f"a{special}\nb", "stop")))
    engine.submit(GenerationRequest("one", [1], SAMPLING, 0, messages=[{"role": "user", "content": "hi"}]))
    turns: list[Any] = []
    while not turns:
        turns = engine.collect()
    assert turns[0].token_ids.count(chat.stop_ids[0]) == 1
    assert chat.decode(turns[0].token_ids[:-1]) == "a< |im_end|>\nb"


def test_a_request_without_messages_is_refused(server: Any, open_engine: Open) -> None:
    with pytest.raises(ValueError, match="needs the conversation's messages"):
        open_engine(server).submit(GenerationRequest("one", [1], SAMPLING, 0))
