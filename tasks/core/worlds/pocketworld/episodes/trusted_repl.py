"""A REPL in this process for code that we wrote ourselves (demonstrations, oracles). Never for an agent's code."""

import contextlib
import io
from typing import Any

from tasks.core.sandbox import CallApi, Execution


class TrustedRepl:
    """The interface of `tasks.core.sandbox.Repl`, without a separate process and without limits."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}

    def run(self, code: str, call_api: CallApi) -> Execution:
        """Execute `code`; names persist for the next run."""
        self._names["apis"] = _Apis(call_api)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(code, "<code>", "exec"), self._names)
        except Exception as error:
            line = f"{type(error).__name__}: {error}"
            return Execution(f"{printed.getvalue()}{line}\n", True, line)
        return Execution(printed.getvalue(), False)

    def close(self) -> None:
        """Forget all names."""
        self._names.clear()


class _Apis:
    """`apis.<app>.<name>(...)`: every attribute is an app, every attribute of an app a call."""

    def __init__(self, call_api: CallApi) -> None:
        self._call_api = call_api

    def __getattr__(self, app: str) -> "_App":
        return _App(self._call_api, app)


class _App:
    def __init__(self, call_api: CallApi, app: str) -> None:
        self._call_api, self._app = call_api, app

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._call_api(self._app, name, list(args), kwargs)
