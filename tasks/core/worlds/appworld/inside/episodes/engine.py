"""The engine without its server: loaded once per zygote, without any data.

What differs from `appworld.environment.AppWorld`, for speed and for safety, and what was tested to answer the same:
- requests are answered in the calling thread by the same FastAPI app, built once and not per task;
- no state, log or report is written to disk; a world hands its recorded changes out instead;
- databases are not bound again when they are bound already, and record hashes are read without the ORM.
"""

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import datetime
from functools import wraps
from typing import Any

_known_details: dict[int, tuple[Any, Any]] = {}
APPWORLD_SEED = 100  # the official server's default


class Engine:
    """The package, imported and warm. Only one per process."""

    def __init__(self) -> None:
        from appworld.apps import build_main_app, get_all_apps
        from appworld.common.utils import GCThreshold, import_models_module

        _run_endpoints_in_this_thread()
        self.app_names = tuple(sorted(get_all_apps()))
        self.app = build_main_app(self.app_names)
        for name in self.app_names:
            import_models_module(name)
        self._load_documentation()
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

    def _load_documentation(self) -> None:
        from appworld.apps import get_all_apps
        from appworld.collections.api_docs import ApiDocCollection

        ApiDocCollection.load(load_apps=tuple(get_all_apps(skip_admin=True)), include_response_schemas=True)


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
