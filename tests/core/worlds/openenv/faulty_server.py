"""An OpenEnv server that goes wrong as it is told: `python faulty_server.py PORT`.

It is made with the package's kit, and its environment goes wrong on the messages hang, die, break and once, and
pays nothing for null, null end and nan. Under
/WAY it is a server of another make or version.
"""

import os
import sys
import time
from typing import Any

import uvicorn
from fastapi import FastAPI, WebSocket
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

SCHEMA = {"action": {"properties": {"message": {}}, "required": ["message"], "additionalProperties": False}}
GOOD: dict[str, Any] = {"type": "observation", "data": {"observation": {"said": "hello"}, "reward": 0.0, "done": False}}
ANSWERS: dict[str, dict[str, Any]] = {
    "other_answer": {"type": "observation", "data": {"obs": "hello", "terminated": False}},
    "other_reward": {"type": "observation", "data": {**GOOD["data"], "reward": "much"}},
    "other_done": {"type": "observation", "data": {**GOOD["data"], "done": "no"}},
    "other_types": {"type": "error", "data": {"message": "Unknown message type: reset", "code": "UNKNOWN_TYPE"}},
    "other_fields": {"type": "observation", "data": {**GOOD["data"], "observation": {"text": "hello"}}},
}
WAYS = ("no_openenv", "unversioned", "other_schema", "no_websocket", "no_json", "list", *ANSWERS)


class Said(Action):
    message: str = Field(max_length=10)


class Heard(Observation):
    said: str


class Faulty(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    hung = False
    """Whether any session did, for `once`."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Heard:
        if seed == 13:
            raise RuntimeError("no such level")
        return Heard(said="hello")

    def step(self, action: Said, timeout_s: float | None = None, **_: Any) -> Heard:
        if action.message == "die":
            os._exit(1)
        if action.message == "break":
            raise RuntimeError("the board broke")
        if action.message == "hang" or (action.message == "once" and not Faulty.hung):
            Faulty.hung = True
            time.sleep(3)
        reward = {"null": None, "null end": None, "nan": float("nan")}.get(action.message, 1.0)
        return Heard(said=action.message, reward=reward, done=action.message in ("once", "null end"))

    @property
    def state(self) -> State:
        return State()


def other_server(way: str) -> FastAPI:
    app = FastAPI()
    if way == "no_openenv":
        return app
    if way == "unversioned":
        app.get("/metadata")(lambda: {"name": "other", "description": ""})
    app.get("/schema")(lambda: {"actions": []} if way == "other_schema" else SCHEMA)
    if way in ("other_schema", "no_websocket"):
        return app

    @app.websocket("/ws")
    async def ws(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.receive_text()
        if way == "no_json":
            await websocket.send_text("hello")
        elif way == "list":
            await websocket.send_json([])
        else:
            await websocket.send_json(ANSWERS[way])
        await websocket.receive()

    return app


if __name__ == "__main__":
    port = int(sys.argv[1])
    app = create_fastapi_app(Faulty, Said, Heard, max_concurrent_envs=2)
    for way in WAYS:
        app.mount(f"/{way}", other_server(way))
    print(f"http://127.0.0.1:{port}", flush=True)
    uvicorn.run(app, port=port, log_level="critical")
