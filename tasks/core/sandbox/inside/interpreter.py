"""The REPL process: receives code over its socket, runs it, and sends API calls and results back as JSON.

Messages are a 4-byte big-endian length and a JSON object. In: {"run": n, "code": str}, {"value": v}, {"error": str}.
Out: {"ready": confinement}, {"call": [app, name, args, kwargs]}, {"done": n, "printed", "dropped", "line", "error"}.
"""

import builtins
import io
import sys
from types import TracebackType
from typing import Any, NoReturn

from tasks.core.confinement.inside.channel import Channel

# Functions look up built-in names in their module's __builtins__. A private copy ensures that an agent's
# `builtins.len = None` breaks only the agent's code, not the protocol.
globals()["__builtins__"] = dict(vars(builtins))


class ApiError(Exception):
    """An API answered with an error."""


class Printed(io.TextIOBase):
    """Standard output and standard error: keeps the first `limit` characters and counts the others."""

    def __init__(self, limit: int) -> None:
        self._parts: list[str] = []
        self._room = limit
        self.dropped = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        kept = str(text[: self._room])
        if kept:
            self._parts.append(kept)
            self._room -= len(kept)
        self.dropped += len(text) - len(kept)
        return len(text)

    def text(self) -> str:
        return "".join(self._parts)


class Api:
    """`apis` and `apis.app`: a path that can be called once it has two names."""

    def __init__(self, channel: Channel, path: tuple[str, ...]) -> None:
        self.__channel = channel
        self.__path = path

    def __getattr__(self, name: str) -> "Api":
        if name.startswith("__") or len(self.__path) == 2:
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        return Api(self.__channel, (*self.__path, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(self.__path) != 2:
            raise TypeError(f"{self!r} is not callable; call apis.<app>.<name>(...)")
        self.__channel.send({"call": [*self.__path, args, kwargs]})
        answer = self.__channel.receive()
        if "error" in answer:
            raise ApiError(answer["error"])
        return answer["value"]

    def __repr__(self) -> str:
        return ".".join(("apis", *self.__path))


class Interpreter:
    """A REPL that runs code blocks one after another in one namespace."""

    def __init__(self, channel: Channel, output_chars: int, error_chars: int) -> None:
        self._channel = channel
        self._output_chars = output_chars
        self._error_chars = error_chars
        self._sources: dict[str, list[str]] = {}
        self._namespace = {"__name__": "__main__", "apis": Api(channel, ()), "ApiError": ApiError}

    def serve(self) -> NoReturn:
        """Run incoming code until the channel closes."""
        while True:
            request = self._channel.receive()
            self._channel.send({"done": request["run"], **self._run(request["code"], f"<turn {request['run']}>")})

    def _run(self, code: str, name: str) -> dict[str, Any]:
        self._sources[name] = code.split("\n")
        printed = Printed(self._output_chars)
        sys.stdout = sys.stderr = printed
        line = error = ""
        try:
            exec(compile(code, name, "exec", dont_inherit=True), self._namespace)
        except BaseException as raised:
            line, error = self._line(raised), self._last_line(raised)
        return {
            "printed": _clean(printed.text()),
            "dropped": printed.dropped,
            "line": _clean(line),
            "error": _clean(error),
        }

    def _last_line(self, raised: BaseException) -> str:
        try:
            text = raised.msg if isinstance(raised, SyntaxError) else str(raised)
        except BaseException:
            text = "<the error's text can't be shown>"
        name = type(raised).__name__
        return _shortened(str(f"{name}: {text}" if text else name), self._error_chars)

    def _line(self, raised: BaseException) -> str:
        """Return `line N: source` for the innermost line of the agent's own code."""
        location = _place(raised, self._sources)
        if location is None:
            return ""
        name, number = location
        lines = self._sources[name]
        source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        return _shortened(f"line {number}: {source}", self._error_chars)


def _place(raised: BaseException, sources: dict[str, list[str]]) -> tuple[str, int] | None:
    if isinstance(raised, SyntaxError) and raised.filename in sources:
        return raised.filename, raised.lineno or 0
    location = None
    frame: TracebackType | None = raised.__traceback__
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if name in sources:
            location = name, frame.tb_lineno
        frame = frame.tb_next
    return location


def _shortened(text: str, most: int) -> str:
    """Return the text, shortened to `most` characters with a note of its full length if it is longer."""
    if len(text) <= most:
        return text
    note = f" ... ({len(text)} characters in all)"
    return text[: max(0, most - len(note))] + note[:most]


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
