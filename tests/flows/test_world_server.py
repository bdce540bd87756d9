"""Our worlds served by the package's own server, played by the package's own client."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from websockets.sync.client import connect

from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.processes.addresses import free_port
from tasks.core.records.files import digest
from tests.openenv_servers import ROOT, running, served_world

pytestmark = pytest.mark.openenv
IDLE = '```python\napis.supervisor.complete_task(status="fail")\n```'
LEAVES = """
import sys, time
from openenv.core import GenericEnvClient
clients = [GenericEnvClient(sys.argv[1]).sync() for _ in range(3)]
for client in clients:
    client.reset(index=0)
    client.step({"text": "```python\\nprint(1)\\n```"})
print("left", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, psutil.Process]]:
    """Serve pocketworld; yield its address and process."""
    with running("-m", "flows.cli", "serve", "pocketworld", "--port", "0", "--sessions", "32") as (url, process):
        yield url, psutil.Process(process.pid)


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Open the same world in this process."""
    folder = tmp_path_factory.mktemp("inner") / "world"
    prepare_world_folder(WorldSection.of("pocketworld"), folder)
    with closing(open_world(WorldSection.of("pocketworld"), folder)) as world:
        yield world


def test_the_version_tells_which_tasks_are_served(server: tuple[str, psutil.Process], tmp_path: Path) -> None:
    prepare_world_folder(WorldSection.of("pocketworld"), tmp_path / "world")
    told = httpx2.get(f"{server[0]}/metadata").json()
    assert (told["name"], told["version"]) == ("pocketworld", digest(tmp_path / "world"))


def client(url: str) -> Any:
    from openenv.core import GenericEnvClient

    return GenericEnvClient(url).sync()


def solution(world: World, index: int) -> tuple[str, list[str]]:
    """Return a task's id, and the turns that solve it."""
    task_id = world.tasks("train")[index].task_id
    return task_id, world.demonstration(task_id)  # type: ignore[attr-defined]


def test_the_oracle_succeeds_and_giving_up_does_not(server: tuple[str, psutil.Process], inner: World) -> None:
    with client(server[0]) as session:
        for index in range(0, 60, 10):
            task_id, turns = solution(inner, index)
            opened = session.reset(split="train", index=index, seed=1)
            with closing(inner.open(task_id, 1)) as episode:
                assert (opened.observation["task_id"], opened.observation["messages"]) == (task_id, episode.prompt)
            seen = [session.step({"text": turn}) for turn in turns]
            assert [step.done for step in seen] == [False] * (len(turns) - 1) + [True]
            assert [step.reward for step in seen] == [None] * (len(turns) - 1) + [1.0]
            assert (seen[-1].observation["success"], seen[-1].observation["score"]) == (True, 1.0)
            session.reset(task_id=task_id)
            given_up = session.step({"text": IDLE})
            assert given_up.done and given_up.observation["success"] is False and given_up.reward < 1


def test_sessions_do_not_see_each_other(server: tuple[str, psutil.Process], inner: World) -> None:
    with client(server[0]) as first, client(server[0]) as second:
        plans = [(session, solution(inner, index)) for session, index in ((first, 3), (second, 12))]
        for session, (task_id, _) in plans:
            session.reset(task_id=task_id)
        ended = []
        for step in range(max(len(turns) for _, (_, turns) in plans)):
            ended += [session.step({"text": turns[step]}) for session, (_, turns) in plans if step < len(turns)]
        assert [end.observation["success"] for end in ended if end.done] == [True, True]
        assert first.state()["task_id"] != second.state()["task_id"]


def test_32_sessions_at_once_and_no_33rd(server: tuple[str, psutil.Process], inner: World) -> None:
    from openenv.core import GenericEnvClient

    async def episode(number: int) -> bool:
        task_id, turns = solution(inner, number)
        async with GenericEnvClient(server[0]) as session:
            await session.reset(task_id=task_id)
            await all_open.wait()
            await played_on.wait()
            results = [await session.step({"text": turn}) for turn in turns]
        return bool(results[-1].observation["success"])

    async def play() -> list[bool]:
        episodes = [asyncio.create_task(episode(number)) for number in range(32)]
        await all_open.wait()
        async with GenericEnvClient(server[0]) as late:
            with pytest.raises(RuntimeError, match="CAPACITY_REACHED"):
                await late.reset()
        played_on.set()
        return await asyncio.gather(*episodes)

    all_open, played_on = asyncio.Barrier(33), asyncio.Event()
    assert asyncio.run(play()) == [True] * 32


def test_a_client_that_vanishes_leaves_nothing_open(server: tuple[str, psutil.Process]) -> None:
    url, process = server
    with client(url) as warm:
        warm.reset()
    before = {child.pid for child in process.children(recursive=True)}
    threads = process.num_threads()
    with subprocess.Popen([sys.executable, "-c", LEAVES, url], stdout=subprocess.PIPE, text=True) as leaving:
        assert leaving.stdout is not None and leaving.stdout.readline() == "left\n"
        assert len({child.pid for child in process.children(recursive=True)} - before) >= 3
        leaving.kill()
    for _ in range(100):
        if {child.pid for child in process.children(recursive=True)} <= before and process.num_threads() <= threads:
            return
        time.sleep(0.1)
    pytest.fail("processes or threads of a session that nobody holds are left")


def test_bad_messages_leave_the_session_usable(server: tuple[str, psutil.Process], inner: World) -> None:
    task_id, turns = solution(inner, 0)
    with client(server[0]) as session:
        for bad, message in (
            (lambda: session.step({"text": "early"}), "no episode is open; reset first"),
            (lambda: session.reset(task_id="nobody"), "unknown task 'nobody'"),
            (lambda: session.reset(tsk_id=task_id), "reset: tsk_id: Extra inputs are not permitted; it takes seed, "),
            (lambda: session.reset(index="0"), "reset: index: Input should be a valid integer"),
            (lambda: session.reset(seed=True), "reset: seed: Input should be a valid integer"),
            (lambda: session.reset(split=["dev"]), "reset: split: Input should be a valid string"),
            (lambda: session.reset(split="nowhere"), "unknown split 'nowhere'"),
            (lambda: session.reset(split="dev", index=10**6), "no task 1000000 in dev, which has 60"),
            (lambda: session.reset(split="dev", index=-1), "no task -1 in dev"),
            (lambda: session.step({"words": "x"}), "VALIDATION_ERROR"),
            (lambda: session.step({"text": "x" * 1_000_001}), "VALIDATION_ERROR"),
        ):
            with pytest.raises(RuntimeError, match=message):
                bad()
        session.reset(task_id=task_id)
        assert [session.step({"text": turn}) for turn in turns][-1].observation["success"]
        with pytest.raises(RuntimeError, match="reset first"):
            session.step({"text": turns[0]})


UNANSWERABLE = (
    ('{"type": "step", "data": {"text": "\\ud800"}}', "VALIDATION_ERROR", "lone surrogate"),
    ('{"type": "step", "data": {"\\udfff": 1}}', "VALIDATION_ERROR", "lone surrogate"),
    ('{"type": "step", "data": ' + '{"a": ' * 80 + "1" + "}" * 81, "VALIDATION_ERROR", "nested deeper"),
    ("[" * 100_000, "INVALID_JSON", "nested deeper"),
    ("[1, 2]", "INVALID_JSON", "expected a JSON object"),
    ("null", "INVALID_JSON", "expected a JSON object"),
    ("5", "INVALID_JSON", "expected a JSON object"),
    ("1" * 5000, "INVALID_JSON", "Invalid JSON"),
    ("", "INVALID_JSON", "expected a JSON object"),
    ("{", "INVALID_JSON", "Invalid JSON"),
    (b"\xff", "INVALID_JSON", "expected a JSON object"),
    ('{"type": ["step"]}', "UNKNOWN_TYPE", "Unknown message type"),
    ('{"type": "step"}', "VALIDATION_ERROR", "Invalid message"),
    ('{"type": "step", "data": {"text": NaN}}', "VALIDATION_ERROR", "Invalid message"),
)


def test_messages_that_the_kit_cannot_answer_leave_the_episode_open(
    server: tuple[str, psutil.Process], inner: World
) -> None:
    task_id, turns = solution(inner, 0)
    with connect(server[0].replace("http", "ws") + "/ws") as session:

        def answer(message: str | bytes) -> dict[str, Any]:
            session.send(message)
            told: dict[str, Any] = json.loads(session.recv())
            return told

        answer(json.dumps({"type": "reset", "data": {"task_id": task_id}}))
        for message, code, reason in UNANSWERABLE:
            told = answer(message)
            assert told["type"] == "error" and told["data"]["code"] == code and reason in told["data"]["message"]
        answer(json.dumps({"type": "reset", "data": {"task_id": "nobody"}}))
        seen = [answer(json.dumps({"type": "step", "data": {"text": turn}})) for turn in turns]
        assert seen[-1]["data"]["done"] and seen[-1]["data"]["reward"] == 1.0


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/reset", '{"task_id": "nope"}', "unknown task 'nope'"),
        ("/reset", '{"index": -5}', "no task -5 in train"),
        ("/reset", '{"index": "a"}', "index: Input should be a valid integer"),
        ("/reset", '{"tsk": 1}', "tsk: Extra inputs are not permitted"),
        ("/reset", '{"task_id": "\\ud800"}', "lone surrogate"),
        ("/reset", "[" * 100_000, "nested deeper"),
        ("/reset", "[1]", "valid dictionary"),
        ("/step", '{"action": {"text": "\\ud800"}}', "lone surrogate"),
        ("/step", '{"action": {"text": "x"}}', "reset first"),
    ],
)
def test_bad_requests_are_answered_without_a_traceback(
    server: tuple[str, psutil.Process], path: str, body: str, reason: str
) -> None:
    told = httpx2.post(server[0] + path, content=body, headers={"content-type": "application/json"})
    assert told.status_code == 422 and reason in told.text


def test_code_whose_fences_a_client_took_off_runs_where_the_knob_says_so(inner: World) -> None:
    task_id, turns = solution(inner, 0)
    bare = [turn.split("```")[1].removeprefix("python\n") for turn in turns]
    with served_world("pocketworld", "--set", "world.code_blocks=first_or_bare") as url, client(url) as session:
        session.reset(task_id=task_id)
        assert [session.step({"text": code}) for code in bare][-1].observation["success"]


def test_the_packages_own_command_runs_in_this_environment() -> None:
    done = subprocess.run([Path(sys.executable).parent / "openenv", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "Usage: openenv" in done.stdout


def test_no_solution_and_no_test_crosses_the_wire(server: tuple[str, psutil.Process], inner: World) -> None:
    """Compare all that the server sends over its routes, and over a session that fails, with what it must not send."""
    url, said = server[0], []
    for path in ("/schema", "/metadata", "/state", "/openapi.json", "/pocketworld/splits", "/health"):
        said.append(httpx2.get(url + path).raise_for_status().text)
    listed = httpx2.post(f"{url}/pocketworld/tasks", json={"split": "train"}).raise_for_status()
    said += [listed.text, httpx2.post(f"{url}/reset", json={"index": 5}).raise_for_status().text]
    task_id, turns = solution(inner, 5)
    with connect(url.replace("http", "ws") + "/ws") as session:
        for message in (
            {"type": "reset", "data": {"task_id": task_id}},
            {"type": "step", "data": {"text": "```python\nprint(apis)\nprint(1 / 0)\n```"}},
            {"type": "state"},
            {"type": "step", "data": {"text": IDLE}},
        ):
            session.send(json.dumps(message))
            said.append(session.recv())
    with closing(inner.open(task_id, 0)) as episode:
        verdict = episode.evaluate()
    assert len(listed.json()["tasks"]) == len(inner.tasks("train"))
    hidden = {line for turn in turns for line in turn.splitlines() if len(line) > 12}
    hidden |= {*verdict.passed, *verdict.failed}
    assert hidden and not [secret for secret in hidden if any(secret in text for text in map(str, said))]


def test_turns_that_earn_have_their_rewards() -> None:
    with served_world("sokoban") as url, client(url) as session:
        session.reset(index=0, seed=0)
        first = session.step({"text": "<think>so</think><answer>Up</answer>"})
        assert first.reward == pytest.approx(-0.1) and first.observation["api_calls"] == ["sokoban.Up"]
        rest = [session.step({"text": "nonsense"}) for _ in range(4)]
        assert rest[-1].done and rest[-1].observation["success"] is False
        assert all(step.reward < 0 and step.observation["failed"] for step in rest)


def test_it_listens_to_this_machine_only_and_ends_with_all_that_it_started() -> None:
    with running("-m", "flows.cli", "serve", "pocketworld", "--port", "0") as (url, started):
        process = psutil.Process(started.pid)
        with client(url) as session:
            session.reset()
            session.step({"text": "```python\nprint(1)\n```"})
            listening = {each.laddr.ip for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
            assert listening == {"127.0.0.1"}
            children = process.children(recursive=True)
            assert children
            started.send_signal(signal.SIGTERM)
            assert started.wait(20) == 128 + signal.SIGTERM
        assert not psutil.wait_procs(children, timeout=5)[1]


def test_a_world_that_cannot_be_served_is_one_message() -> None:
    def told(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "flows.cli", "serve", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    code, message = told("nowhere")
    assert code == 2 and "world.name: no world is called" in message and "Traceback" not in message
    code, message = told("openenv")
    assert code == 1 and "world.openenv.action is empty" in message and "Traceback" not in message
    port = free_port()
    with running("-m", "flows.cli", "serve", "bandit", "--port", str(port)):
        code, message = told("bandit", "--port", str(port))
        assert code == 3 and "address already in use" in message


def test_the_folder_of_tasks_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with served_world("bandit"):
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_kept_folder_is_made_once_and_served_again_and_another_worlds_is_one_message(tmp_path: Path) -> None:
    kept = tmp_path / "data" / "world"
    arguments = ("bandit", "--folder", str(kept), "--set", "world.seed=5")
    with served_world(*arguments) as url:
        first = httpx2.get(f"{url}/metadata").json()["version"]
    assert first == digest(kept)
    made = {path: path.stat().st_mtime_ns for path in kept.rglob("*")}
    with served_world(*arguments) as url:
        assert httpx2.get(f"{url}/metadata").json()["version"] == first
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*")} == made

    command = [sys.executable, "-m", "flows.cli", "serve", "sokoban", "--folder", str(kept)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and str(kept) in done.stderr and "Traceback" not in done.stderr
