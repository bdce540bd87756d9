"""The package's server kit around a world: one process, a thread per session, until it is told to stop."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from openenv.core.env_server import ConcurrencyConfig, create_fastapi_app

from flows.world_server.environment import EpisodeState, RequestRefused, Turn, TurnObservation, WorldEnvironment
from flows.world_server.messages import AnswerableMessages
from tasks.core.config.splits import SPLITS
from tasks.core.config.world import WorldConfig
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.records.files import digest

_IDLE_S = 3600.0
"""After so long without a message a session is closed."""
_STOP_S = 5
"""How long open sessions may take to end when the server does."""


def serve_prepared(config: WorldConfig, folder: Path | None, host: str, port: int, sessions: int) -> None:
    """Serve a world with the tasks in `folder`, which are made where it does not exist; None: made for this server.

    The version in /metadata is their digest. Ends as `serve` does.
    """
    with _tasks(config, folder) as tasks, closing(open_world(config, tasks)) as world:
        serve(world, config.name, digest(tasks), host, port, sessions)


@contextmanager
def _tasks(config: WorldConfig, kept: Path | None) -> Iterator[Path]:
    with TemporaryDirectory() as temporary:
        folder = kept or Path(temporary) / "world"
        if not folder.exists():
            prepare_world_folder(config, folder)
        yield folder


def serve(world: World, name: str, version: str, host: str, port: int, sessions: int) -> None:
    """Serve until SIGINT or SIGTERM; `version` is in /metadata. Exits with code 3 where the address is taken."""
    config = uvicorn.Config(
        AnswerableMessages(app_of(world, name, version, sessions)),
        host=host,
        port=port,
        log_level="warning",
        ws_per_message_deflate=False,  # costs more than it saves on one machine
        timeout_graceful_shutdown=_STOP_S,
    )
    tasks = sum(len(world.tasks(split)) for split in SPLITS)
    _Announced(config, f"{name} of version {version}: {tasks} tasks, {sessions} sessions").run()


def app_of(world: World, name: str, version: str, sessions: int) -> FastAPI:
    """Return the kit's application: a `WorldEnvironment` for every session, at most so many at once."""
    app: FastAPI = create_fastapi_app(
        partial(WorldEnvironment, world, name, version),
        Turn,
        TurnObservation,
        env_name=name,
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=_IDLE_S),
        state_cls=EpisodeState,
        mode="simulation",
    )
    app.add_exception_handler(RequestRefused, _refused)
    return app


async def _refused(_: Request, error: Exception) -> JSONResponse:
    """Answer a refusal over HTTP; over a session the kit does."""
    return JSONResponse({"detail": str(error)}, status_code=422)


class _Announced(uvicorn.Server):
    """Prints its address when it listens."""

    def __init__(self, config: uvicorn.Config, title: str) -> None:
        super().__init__(config)
        self._title = title

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            print(f"serving {self._title} at http://{host}:{port}", flush=True)
