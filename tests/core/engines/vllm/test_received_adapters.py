"""What takes adapters in front of a vLLM server, over real HTTP; the server behind it says only that it was asked."""

import hashlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from tasks.core.engines.vllm.inside.received_adapters import FOLDER_VARIABLE, Message, Receive, ReceivedAdapters, Send

KEY, CONTENT = "hunter2", b"weights" * 100_000
PLACE = "/loopline/adapters/policy-0123456789abcdef/adapter_model.safetensors"


loaded: list[str] = []


async def behind(scope: Message, receive: Receive, send: Send) -> None:
    """Say which models are loaded, if any; answer all else alike."""
    if scope["type"] == "http":
        says = bool(loaded) and scope["path"] == "/v1/models"
        body = json.dumps({"data": [{"root": root} for root in loaded]}).encode() if says else b""
        await send({"type": "http.response.start", "status": 200 if says else 418, "headers": []})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "adapters"))
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(ReceivedAdapters(behind), log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with httpx.Client(base_url=address, trust_env=False) as client:
            yield client
        server.should_exit = True
        thread.join()


def put(client: httpx.Client, place: str = PLACE, key: str = KEY, sha256: str | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}", "x-sha256": sha256 or hashlib.sha256(CONTENT).hexdigest()}
    return client.put(place, content=CONTENT, headers=headers)


def test_a_file_is_kept_and_the_answer_names_its_folder(client: httpx.Client, tmp_path: Path) -> None:
    answer = put(client)
    folder = tmp_path / "adapters" / "policy-0123456789abcdef"
    assert (answer.status_code, answer.json()) == (200, {"folder": str(folder)})
    assert [file.name for file in folder.iterdir()] == ["adapter_model.safetensors"]
    assert (folder / "adapter_model.safetensors").read_bytes() == CONTENT


def test_other_bytes_than_the_digest_says_are_refused_and_what_was_there_stays(
    client: httpx.Client, tmp_path: Path
) -> None:
    put(client)
    answer = put(client, sha256="0" * 64)
    assert answer.status_code == 400 and "another SHA-256" in answer.json()["error"]["message"]
    (file,) = (tmp_path / "adapters").rglob("*.safetensors")
    assert file.read_bytes() == CONTENT


def test_without_the_servers_key_nothing_is_written(client: httpx.Client, tmp_path: Path) -> None:
    assert put(client, key="another").status_code == 401
    assert not (tmp_path / "adapters").exists()


@pytest.mark.parametrize(
    "place",
    [
        "/loopline/adapters/policy-0123456789abcdef/other.bin",
        "/loopline/adapters/../policy-0123456789abcdef/adapter_config.json",
        "/loopline/adapters/policy-..%2F..%2Fetc/adapter_config.json",
        "/loopline/adapters/mine/adapter_config.json",
    ],
)
def test_no_other_file_can_be_named(client: httpx.Client, tmp_path: Path, place: str) -> None:
    assert put(client, place).status_code in (404, 418)
    assert not (tmp_path / "adapters").exists()


def test_adapters_that_are_neither_loaded_nor_new_are_removed(
    client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "adapters"
    names = [f"policy-{number:016x}" for number in range(7)]
    (folder / "of somebody else").mkdir(parents=True)
    for name in names[:6]:
        put(client, PLACE.replace("policy-0123456789abcdef", name))
    assert {path.name for path in folder.iterdir()} == {*names[:6], "of somebody else"}  # the server says nothing
    monkeypatch.setattr(sys.modules[__name__], "loaded", ["/base", str(folder / names[1])])
    put(client, PLACE.replace("policy-0123456789abcdef", names[6]))
    assert {path.name for path in folder.iterdir()} == {names[1], *names[3:], "of somebody else"}


def test_all_else_goes_to_the_server_behind(client: httpx.Client) -> None:
    assert client.get("/v1/models").status_code == 418
