"""Parts of the vLLM engine that need no server: launching, sharing."""

import asyncio
import os
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import ValidationError

from tasks.core.config.engine import VllmConfig
from tasks.core.engines.vllm_server.client import ServerClient
from tasks.core.engines.vllm_server.errors import EngineUnavailable
from tasks.core.engines.vllm_server.launching import Address, LaunchSpec, allowed_rank
from tasks.core.engines.vllm_server.server_provider import ExternalServers
from tasks.core.processes.pipeline_process import is_running, pipeline_process, start_time

CODE = Path(__file__).parents[4]
SPEC = LaunchSpec(Path("python"), Path("/model"), "cpu", "float32", 8, 64, None, 0.0, 2, 1)


def test_the_pipeline_is_the_process_that_started_the_stage() -> None:
    code = "from tasks.core.processes.pipeline_process import pipeline_process; print(pipeline_process()[0])"
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
    assert is_running(os.getpid(), start_time(os.getpid()))
    assert not is_running(os.getpid(), start_time(os.getpid()) - 60)


def test_any_difference_makes_another_server() -> None:
    assert replace(SPEC).digest == SPEC.digest
    assert len({replace(SPEC, weights="a").digest, replace(SPEC, dtype="bfloat16").digest, SPEC.digest}) == 3


def test_a_server_listens_on_loopback_alone_and_caches_prefixes() -> None:
    command = SPEC.command(1234)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert {"--enable-prefix-caching", "--enable-lora", "--tokens-only"} <= set(command)
    assert "--enable-lora" not in replace(SPEC, lora_rank=None).command(1234)


def test_gpu_servers_get_their_own_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    spec = replace(SPEC, device="cuda", gpus=(2, 3), memory_share=0.5)
    assert spec.variables(tmp_path)["CUDA_VISIBLE_DEVICES"] == "2,3"
    command = spec.command(1)
    assert command[command.index("--tensor-parallel-size") + 1] == "2"
    assert "--enforce-eager" not in command


def test_gpu_servers_stay_on_the_gpus_that_the_process_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5")
    assert replace(SPEC, device="cuda", gpus=(1,)).variables(tmp_path)["CUDA_VISIBLE_DEVICES"] == "GPU-5"
    with pytest.raises(ValueError, match="the servers need 3 GPUs, but CUDA_VISIBLE_DEVICES is '4,GPU-5'"):
        replace(SPEC, device="cuda", gpus=(2,)).variables(tmp_path)


def test_ranks_are_rounded_up_to_what_vllm_takes() -> None:
    assert [allowed_rank(rank) for rank in (1, 4, 8, 9, 512)] == [1, 8, 8, 16, 512]
    with pytest.raises(ValueError, match="512"):
        allowed_rank(513)


def test_found_servers_cannot_take_turns() -> None:
    with pytest.raises(ValidationError, match="not ours to stop"):
        VllmConfig(urls=("http://x",), sharing="alternate")


def test_found_servers_cannot_be_given_full_weights() -> None:
    with pytest.raises(ValueError, match=r"checkpoint: a fully trained policy can't be given to servers at engine"):
        ExternalServers(["http://127.0.0.1:9"], 1).start(Path("checkpoint"))


def test_a_url_of_something_else_is_one_error(tmp_path: Path) -> None:
    """Python's own file server answers every path with a page or with 404."""
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "models").write_text("{}")
    (tmp_path / "version").write_text("{}")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()

    async def served() -> None:
        client = ServerClient(Address(f"http://127.0.0.1:{server.server_address[1]}", ""), 1, 5)
        try:
            await client.served()
        finally:
            await client.close()

    try:
        with pytest.raises(EngineUnavailable, match="not a vLLM server"):
            asyncio.run(served())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
