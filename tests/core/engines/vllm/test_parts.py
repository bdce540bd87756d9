"""Parts of the vLLM engine that need no server: launching, sharing."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import ValidationError

from flows.cli.app import main
from tasks.core.capacity.memory import Sharing
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm import servers
from tasks.core.engines.vllm.client import EngineUnavailable, Sampled, ServerClient, ServerGone
from tasks.core.engines.vllm.engine import launch_specs
from tasks.core.engines.vllm.interpreter import VLLM_CPU, VLLM_GPU, vllm_recipe
from tasks.core.engines.vllm.launching import Address, LaunchSpec, allowed_rank
from tasks.core.engines.vllm.servers import ExternalServers, _weights_alone
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.interpreters import InterpreterRecipe
from tasks.core.processes.running import Process, find_process, pipeline_process

T = TypeVar("T")
CODE = Path(__file__).parents[4]
SPEC = LaunchSpec(Path("python"), Path("/model"), "cpu", "float32", 8, 64, None, 0.0, 2, 1)


def test_the_pipeline_is_the_process_that_started_the_stage() -> None:
    code = "from tasks.core.processes.running import pipeline_process; print(pipeline_process()[0])"
    found = {
        stage: subprocess.run(
            [sys.executable, "-c", f"import os; print(os.getpid()); {code}"],
            cwd=CODE,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        ).stdout.split()
        for stage, variables in {"": {}, "score": {"DVC_STAGE": "score"}}.items()
    }
    assert found[""][0] == found[""][1]
    assert found["score"][1] == str(pipeline_process()[0])


def test_a_reused_process_number_is_another_process() -> None:
    process = find_process(os.getpid())
    assert process.is_running
    assert not Process(process.pid, process.started - 1).is_running


def test_links_to_checkpoints_that_were_served_long_ago_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = []
    for number in range(10):
        made.append(_weights_alone(tmp_path / "checkpoint", f"{number:064x}"[::-1]))
        os.utime(made[-1], (number, number))  # the file system's clock ticks slower than these are made
    assert [folder.exists() for folder in made] == [False] * 2 + [True] * 8
    assert _weights_alone(tmp_path / "checkpoint", f"{2:064x}"[::-1]) == made[2]
    _weights_alone(tmp_path / "checkpoint", "f" * 64)
    assert made[2].exists() and not made[3].exists()  # what is served again is new again


def test_any_difference_makes_another_server() -> None:
    assert replace(SPEC).digest == SPEC.digest
    assert len({replace(SPEC, weights="a").digest, replace(SPEC, dtype="bfloat16").digest, SPEC.digest}) == 3


def test_a_server_listens_on_loopback_alone_and_caches_prefixes() -> None:
    command = SPEC.command(1234)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert {"--enable-prefix-caching", "--enable-lora", "--tokens-only"} <= set(command)
    assert "--enable-lora" not in replace(SPEC, lora_rank=None).command(1234)


def test_gpu_servers_get_their_own_gpus_among_those_that_the_process_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    spec = replace(SPEC, device="cuda", gpus=(2, 3), memory_share=0.5)
    assert spec.variables(tmp_path)["CUDA_VISIBLE_DEVICES"] == "2,3"
    command = spec.command(1)
    assert command[command.index("--tensor-parallel-size") + 1] == "2" and "--enforce-eager" not in command
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5")
    assert replace(spec, gpus=(1,)).variables(tmp_path)["CUDA_VISIBLE_DEVICES"] == "GPU-5"
    with pytest.raises(ValueError, match="the servers need 3 GPUs, but CUDA_VISIBLE_DEVICES is '4,GPU-5'"):
        replace(spec, gpus=(2,)).variables(tmp_path)


def test_the_batch_invariant_mode_is_for_own_servers_on_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    on_gpu = replace(SPEC, device="cuda", gpus=(0,))
    assert "VLLM_BATCH_INVARIANT" not in on_gpu.variables(tmp_path)
    invariant = replace(on_gpu, batch_invariant=True)
    assert invariant.variables(tmp_path)["VLLM_BATCH_INVARIANT"] == "1" and invariant.digest != on_gpu.digest
    config, policy = VllmConfig(batch_invariant=True), PolicyConfig(device="cpu")
    with pytest.raises(ValueError, match=r"engine\.vllm\.batch_invariant: vLLM has this mode for GPUs alone"):
        launch_specs(config, policy, tmp_path, "cpu", Sharing(False, 0.9, ""))
    with pytest.raises(ValidationError, match="batch_invariant: the pipeline did not start the servers at `urls`"):
        VllmConfig(batch_invariant=True, urls=("http://x",))


def test_ranks_are_rounded_up_to_what_vllm_takes() -> None:
    assert [allowed_rank(rank) for rank in (1, 4, 8, 9, 512)] == [1, 8, 8, 16, 512]
    with pytest.raises(ValueError, match="512"):
        allowed_rank(513)


def test_found_servers_cannot_take_turns() -> None:
    with pytest.raises(ValidationError, match="did not start those"):
        VllmConfig(urls=("http://x",), sharing="alternate")


def test_found_servers_cannot_be_given_full_weights() -> None:
    with pytest.raises(
        ValueError, match=r"checkpoint: a fully trained policy, and http://127\.0\.0\.1:9 \(engine\.vllm\.urls\) can"
    ):
        ExternalServers(["http://127.0.0.1:9"], 1).start(Path("checkpoint"))


def test_full_weights_for_found_servers_are_refused_with_the_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    knobs = ["engine.name=vllm", "policy.trained=full", "engine.vllm.urls=['http://node1:8000','http://node2:8000']"]
    told = [part for knob in knobs for part in ("--set", knob)]
    assert main(["configure", "default", *told]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert "servers that run already can be given adapters alone (http://node1:8000, http://node2:8000)" in said
    assert "set policy.trained: lora, or unset urls" in said
    assert main(["configure", "default", *told, "--set", "iterations=0"]) == 0


def served(routes: Iterable[web.RouteDef], work: Callable[[ServerClient], Awaitable[T]]) -> T:
    """Outcome of `work` with a client of a server that has these routes."""

    async def run() -> T:
        app = web.Application()
        app.add_routes(routes)
        async with TestServer(app) as server:
            client = ServerClient(Address(str(server.make_url("")).rstrip("/"), ""), 1, 5)
            try:
                return await work(client)
            finally:
                await client.close()

    return asyncio.run(run())


async def nothing(_: web.Request) -> web.Response:
    return web.json_response({})


def test_a_url_of_something_else_is_one_error() -> None:
    with pytest.raises(EngineUnavailable, match="not a vLLM server"):
        served([web.get("/{page:.*}", nothing)], lambda client: client.served())


WHOLE = {"choices": [{"token_ids": [5], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": "length"}]}


def asked(
    work: Callable[[ServerClient], Awaitable[list[Sampled | BaseException]]], *answers: web.Response | None
) -> list[Sampled | BaseException]:
    """Outcome of `work` with a server that is healthy and gives these answers to turns, the last one for ever.

    None: it never answers.
    """
    left = list(answers)

    async def generate(_: web.Request) -> web.Response:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer is None:
            await asyncio.sleep(60)
            raise AssertionError
        return web.Response(status=answer.status, body=answer.body, content_type=answer.content_type)

    return served([web.post("/inference/v1/generate", generate), web.get("/health", nothing)], work)


async def turns(client: ServerClient, count: int = 1) -> list[Sampled | BaseException]:
    samples = (client.sample("m", [1], temperature=1.0, max_tokens=2, stop_ids=(), seed=0) for _ in range(count))
    return await asyncio.gather(*samples, return_exceptions=True)


@pytest.mark.parametrize(
    "choice",
    [
        {"token_ids": [], "logprobs": {"content": []}, "finish_reason": "abort"},
        {"token_ids": [5, 6], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": "length"},
        {"token_ids": [5], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": "abort"},
        {"token_ids": [5], "logprobs": None, "finish_reason": "length"},
    ],
)
def test_a_turn_that_was_broken_off_is_to_be_asked_for_again(choice: dict[str, object]) -> None:
    (gone,) = asked(turns, web.json_response({"choices": [choice]}))
    assert isinstance(gone, ServerGone)
    assert "sent an incomplete turn" in str(gone)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_a_proxy_says_of_its_server_may_pass(status: int) -> None:
    said = web.Response(status=status, text="upstream connect error")
    assert asked(turns, said, web.json_response(WHOLE)) == [Sampled([5], [-1.0], [])]
    (gone,) = asked(turns, said)
    assert isinstance(gone, ServerGone)
    assert f"{status}: upstream connect error" in str(gone)


def test_turns_whose_client_is_replaced_are_to_be_asked_for_again() -> None:
    """One of them found the server gone; the others are in flight, or wait for their slot."""

    async def cut(client: ServerClient) -> list[Sampled | BaseException]:
        async with asyncio.TaskGroup() as group:
            lost = group.create_task(turns(client, 3))
            await asyncio.sleep(0.2)
            await client.close()
        return lost.result()

    assert [type(gone) for gone in asked(cut, None)] == [ServerGone] * 3


def test_what_another_machine_keeps_in_a_shared_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_HOST", "node")
    gone = subprocess.Popen(["true"])
    gone.wait()
    names = (f"node-{gone.pid}-0.json", f"node-{os.getpid()}-0.json", f"node-0-{gone.pid}-0.json", "node-0-1-0.log")
    for name in names:
        (tmp_path / name).write_text("{}")
    servers._sweep(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == set(names[1:])


@pytest.mark.parametrize("lost", [1, 2])
def test_an_adapter_whose_loading_was_answered_by_a_proxy_is_loaded(lost: int, tmp_path: Path) -> None:
    """The server had done it, and refuses to do it again, as vLLM does."""
    held: dict[str, str] = {}
    tries: list[str] = []

    def answered(done: bool) -> web.Response:
        tries.append("try")
        if len(tries) <= lost:
            return web.Response(status=HTTPStatus.BAD_GATEWAY, text="upstream connect error")
        return web.Response(status=HTTPStatus.OK if done else HTTPStatus.BAD_REQUEST, text="already so")

    async def load(request: web.Request) -> web.Response:
        body = await request.json()
        if body["lora_name"] == "elsewhere":
            return web.Response(status=HTTPStatus.NOT_FOUND, text=f"No adapter found for {body['lora_path']}")
        new = body["lora_name"] not in held
        held.setdefault(body["lora_name"], body["lora_path"])
        return answered(new)

    async def unload(request: web.Request) -> web.Response:
        return answered(held.pop((await request.json())["lora_name"], None) is not None)

    async def models(_: web.Request) -> web.Response:
        base = {"id": "base", "root": "folder", "max_model_len": 8}
        cards = [{"id": name, "root": root, "parent": "base"} for name, root in held.items()]
        return web.json_response({"data": [base, *cards]})

    async def load_and_unload(client: ServerClient) -> None:
        await client.load_adapter("ours", tmp_path)
        with pytest.raises(ValueError, match="already so"):
            await client.load_adapter("ours", tmp_path / "another")
        with pytest.raises(ValueError, match="finds no such folder on its machine: share it with that machine"):
            await client.load_adapter("elsewhere", tmp_path)
        tries.clear()
        await client.unload_adapter("ours")

    posts = [web.post("/v1/load_lora_adapter", load), web.post("/v1/unload_lora_adapter", unload)]
    gets = [web.get("/v1/models", models), web.get("/version", nothing), web.get("/health", nothing)]
    served([*posts, *gets], load_and_unload)
    assert not held


@pytest.mark.parametrize("recipe", [VLLM_CPU, VLLM_GPU], ids=lambda recipe: recipe.name)
def test_requirements_are_pinned_and_name_no_index(recipe: InterpreterRecipe) -> None:
    lines = recipe.requirements.read_text().splitlines()
    assert all(line.count("==") == 1 and "/" not in line for line in lines)


def test_both_machines_run_one_version() -> None:
    cpu, gpu = VLLM_CPU.requirements.read_text(), VLLM_GPU.requirements.read_text()
    version = next(line.partition("==")[2] for line in cpu.splitlines() if line.startswith("vllm-cpu=="))
    assert f"vllm=={version}" in gpu.splitlines()
    assert "torch==2.13.0+cpu" in cpu.splitlines() and "torch==2.13.0" in gpu.splitlines()
    assert "torchvision" not in cpu


def test_the_device_decides_which_build() -> None:
    assert vllm_recipe("cuda") is VLLM_GPU
    assert vllm_recipe("cpu") is VLLM_CPU
