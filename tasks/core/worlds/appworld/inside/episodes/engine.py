"""The engine without its server: loaded once per zygote, without any data; and its answers to HTTP requests.

What differs from `appworld.environment.AppWorld`, for speed and for safety, and what was tested to answer the same:
- requests are answered in the calling thread by the same FastAPI app, built once and not per task, without a socket;
- no state, log or report is written to disk; a world hands its recorded changes out instead;
- databases are not bound again when they are bound already, and record hashes are read without the ORM.
"""

import importlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import datetime
from functools import wraps
from typing import Any
from urllib.parse import unquote, urlsplit

_known_details: dict[int, tuple[Any, Any]] = {}
APPWORLD_SEED = 100  # the official server's default


class Engine:
    """The package, imported and warm. Only one per process."""

    def __init__(self) -> None:
        from appworld.apps import build_main_app, get_all_apps
        from appworld.collections.api_docs import ApiDocCollection
        from appworld.common.utils import GCThreshold, import_models_module

        _run_endpoints_in_this_thread()
        self.app_names = tuple(sorted(get_all_apps()))
        self.app = build_main_app(self.app_names)
        for name in self.app_names:
            import_models_module(name)
        ApiDocCollection.load(load_apps=tuple(get_all_apps(skip_admin=True)), include_response_schemas=True)
        # The evaluator's assertions import pytest at the first comparison, which costs more than an evaluation.
        importlib.import_module("appworld.evaluator")
        importlib.import_module("pytest")

        _build_models(self.app_names)
        _bind_databases_once()
        _read_hashes_without_orm()
        _share_compiled_statements()
        GCThreshold.set(500_000)
        from freezegun import freeze_time

        freeze_time(datetime(2023, 5, 18, 12)).start()

    @property
    def app_descriptions(self) -> dict[str, str]:
        """The package's description of each app that agents may use."""
        from appworld.apps import APP_TO_DESCRIPTION, get_all_apps

        return {name: APP_TO_DESCRIPTION[name] for name in get_all_apps(skip_admin=True)}


def set_clock(moment: datetime) -> None:
    """Move the frozen clock, which is far cheaper than freezing it again: that walks through every loaded module."""
    from freezegun import api

    api.freeze_factories[-1].move_to(moment)


def _run_endpoints_in_this_thread() -> None:
    async def call(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    for name in ("starlette.concurrency", "fastapi.concurrency", "fastapi.routing", "fastapi.dependencies.utils",
                 "starlette._exception_handler", "starlette.routing", "starlette.background"):  # fmt: skip
        importlib.import_module(name).run_in_threadpool = call  # type: ignore[attr-defined]

    async def run_sync(function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        return function(*arguments)

    importlib.import_module("fastapi_login.fastapi_login").run_sync = run_sync  # type: ignore[attr-defined]

    @asynccontextmanager
    async def entered(manager: AbstractContextManager[Any]) -> AsyncIterator[Any]:
        with manager as value:
            yield value

    for name in ("fastapi.concurrency", "fastapi.dependencies.utils"):
        importlib.import_module(name).contextmanager_in_threadpool = entered  # type: ignore[attr-defined]


def _build_models(app_names: tuple[str, ...]) -> None:
    """Build now what the package builds at a model's first use and then keeps."""
    from appworld.common.utils import import_models_module
    from sqlalchemy.orm import configure_mappers

    configure_mappers()
    for name in app_names:
        for model in import_models_module(name).SQLModel.models():
            model.validator()


def _bind_databases_once() -> None:
    """Binding the databases that are bound already is half of an evaluation's time."""
    from appworld.apps.model_lib import CachedDBHandler, Database
    from appworld.collections.models import ModelCollection

    bind = ModelCollection.reset_db_home_path

    @wraps(bind)
    def bind_if_needed(self: Any, create_db: bool = False) -> None:
        path = self.to_db_home_path
        bound = not create_db and all(
            self[name].SQLModel.db.engine is not None
            and self[name].SQLModel.db.home_path == path
            and CachedDBHandler.has(f"{path}/{name}.db")
            for name in self.app_names
        )
        if not bound:
            bind(self, create_db=create_db)

    ModelCollection.reset_db_home_path = bind_if_needed
    details = Database._get_engine_to_details

    def remembered(engine: Any) -> Any:
        entry = _known_details.get(id(engine))
        if entry is None or entry[0] is not engine:
            entry = _known_details[id(engine)] = (engine, details(engine))
        return entry[1]

    Database._get_engine_to_details = staticmethod(remembered)


def _share_compiled_statements() -> None:
    """One cache of compiled SQL for all databases: they are all SQLite, and compiling costs more than running."""
    from appworld.apps import model_lib

    create = model_lib.create_engine
    first: list[Any] = []

    @wraps(create)
    def create_sharing(*arguments: Any, **keywords: Any) -> Any:
        engine = create(*arguments, **keywords)
        if not first:
            first.append(engine)
        engine._compiled_cache, engine.dialect = first[0]._compiled_cache, first[0].dialect  # its keys hold the dialect
        return engine

    model_lib.create_engine = create_sharing


def _read_hashes_without_orm() -> None:
    from appworld.collections.models import ModelCollection

    def ids_record_hashes(self: Any, app_name: str, model_name: str) -> list[tuple[int, str]]:
        key = (app_name, model_name)
        if self._ids_record_hashes[key] is None:
            model = self[app_name][model_name]
            rows = model.db.connection.execute(f'SELECT id, record_hash FROM "{model.__tablename__}"')
            self._ids_record_hashes[key] = rows.fetchall()
        hashes: list[tuple[int, str]] = self._ids_record_hashes[key]
        return hashes

    ModelCollection.ids_record_hashes = ids_record_hashes


_REFUSED = {
    "status": 403,
    "headers": [["content-type", "application/json"]],
    "body": '{"message":"This API is not available."}',
}


class ApiServer:
    """The public APIs of one world. Keeps the log of what was really called."""

    def __init__(self, app: Any, app_names: tuple[str, ...]) -> None:
        from appworld.api_docs import prepare_api_docs

        self._app = app
        self._public = [name for name in app_names if name != "admin"]
        self._routes: dict[str, list[tuple[str, re.Pattern[str], str]]] = {}
        self._private: dict[str, list[re.Pattern[str]]] = {}
        self.plain_routes: list[tuple[str, str, str]] = []
        """(app, method, path) of every public API without parameters in its path."""
        for app_name in self._public:
            public = prepare_api_docs(app_name, include_private_apis=False)
            known = {doc["api_name"] for doc in public}
            every = prepare_api_docs(app_name, include_private_apis=True)
            routes = [(doc["method"], _pattern(doc["path"]), f"{app_name}.{doc['api_name']}") for doc in public]
            self._routes[app_name] = routes
            self._private[app_name] = [_pattern(doc["path"]) for doc in every if doc["api_name"] not in known]
            self.plain_routes += [(app_name, doc["method"], doc["path"]) for doc in public if "{" not in doc["path"]]
        self.log: list[dict[str, Any]] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """`request`: method, url (path and query), headers ([[name, value], ...]), body (text).

        Returns status, headers, body; or "raised": [[module, class, text], ...] of an error inside the engine.
        """
        method = str(request["method"])
        try:
            url = urlsplit(str(request["url"]))
        except ValueError:  # brackets around what is no address
            return _REFUSED
        name = self._api_name(method, url.path)
        if name is None:
            return _REFUSED
        entry = {"api": name, "method": method.lower(), "url": url.path, "query": url.query,
                 "body": str(request["body"]), "status": 500}  # fmt: skip
        try:
            response = _respond(self._app, method, url.path, url.query, request["headers"], str(request["body"]))
        except Exception as error:
            response = {"raised": _chain(error)}
        entry["status"] = response.get("status", 500)
        if name:
            self.log.append(entry)
        return response

    def _api_name(self, method: str, path: str) -> str | None:
        """`app.api`, "" for what is no API (it gets the engine's own 404), None for what agents may not call."""
        parts = path.lstrip("/").partition("/")
        if parts[0] not in self._public:
            return None if parts[0] else ""
        plain = unquote(path).rstrip("/")
        for one, pattern, name in self._routes[parts[0]]:
            if one == method and pattern.fullmatch(plain):
                return name
        if not parts[2] or any(pattern.fullmatch(plain) for pattern in self._private[parts[0]]):
            return None
        return ""


def _pattern(path: str) -> "re.Pattern[str]":
    return re.compile("".join("[^/]+" if part.startswith("{") else re.escape(part) for part in _split(path)))


def _split(path: str) -> list[str]:
    return re.split(r"(\{[^}]*\})", path.rstrip("/"))


def _respond(app: Any, method: str, path: str, query: str, headers: Any, body: str) -> dict[str, Any]:
    payload = body.encode()
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": unquote(path), "raw_path": path.encode(),
        "root_path": "", "scheme": "http", "query_string": query.encode(),
        "headers": [(str(k).lower().encode("latin-1"), str(v).encode("latin-1")) for k, v in headers],
        "client": ["testclient", 50000], "server": ["testserver", 80], "extensions": {}, "state": {},
    }  # fmt: skip
    answer: dict[str, Any] = {"status": 500, "headers": []}
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": payload, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer["status"] = message["status"]
            answer["headers"] = [[k.decode("latin-1"), v.decode("latin-1")] for k, v in message.get("headers", ())]
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    _run(app(scope, receive, send))
    answer["body"] = b"".join(parts).decode("utf-8", "replace")
    return answer


def _run(coroutine: Any) -> None:
    """Drive a coroutine that never waits: everything that would is done in this thread (see `engine`)."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("an API tried to wait")


def _chain(error: BaseException) -> list[list[str]]:
    """The error and those that it was raised from, as text; the first is the outermost."""
    chain: list[list[str]] = []
    one: BaseException | None = error
    while one is not None and len(chain) < 5:
        chain.append([type(one).__module__, type(one).__qualname__, str(one)])
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return chain
