"""The channel from a machine of an update to the pipeline's, over HTTP: messages, the secret, and the side that asks.

Nothing is pickled, and the files that are fetched are compared with their digests. The secret keeps others out of the
update; it does not encrypt, and torch's own connections have none: the network between the machines has to be trusted.
"""

import http.client
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import closing, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Literal

from pydantic import ValidationError, model_validator

from flows.workers.needed_folders import NeededFolder
from tasks.core.config.section import Section
from tasks.core.learner.update_job import UpdateJob

BEAT_S = 1.0
"""A machine asks for news this often."""
SILENCE_S = 30.0
"""Seconds without a word after which either side counts the other as lost."""
PIECE_BYTES = 2**18
"""A piece has to pass within SILENCE_S, on the slowest link too."""
SECRET_VARIABLE = "LOOPLINE_JOIN_SECRET"
SESSION = "X-Loopline-Session"
_MOST_SAID = 2**24


class Coming(Section):
    """A machine that would take part."""

    host: str
    environment: dict[str, str]
    """As `environment()` has it."""
    code: str
    """Digest of the code that its ranks would run."""


class Offer(Section):
    """A place in an update."""

    session: str
    number: int
    store_port: int
    label: str
    """The stage."""
    last: bool
    """Whether no later update of the run follows."""
    job: UpdateJob
    needs: tuple[NeededFolder, ...]
    cache_bytes: float

    @model_validator(mode="after")
    def _names_nothing_outside(self) -> "Offer":
        """Hold whoever answers at HOST:PORT to files of the project: this machine makes, links and removes them."""
        for need in self.needs:
            paths = [need.path.relative_to(self.job.root), *(Path(name) for name, _ in need.files)]
            if any(path.is_absolute() or ".." in path.parts for path in paths):
                raise ValueError("a file outside of the project")
            if not all(re.fullmatch("[0-9a-f]{64}", sha256) for _, sha256 in need.files):
                raise ValueError("a digest that is none")
        return self


class News(Section):
    """State of the update."""

    state: Literal["gathering", "going", "ended"]
    reason: str | None = None
    """Why it ended, where it failed."""


class Reason(Section):
    """A machine's failure, or a refusal."""

    reason: str


class Refused(RuntimeError):  # noqa: N818
    """The pipeline's machine does not want this one; asking again does not help."""


class NoPlace(RuntimeError):  # noqa: N818
    """The update has all of its machines."""


class PipelineLost(ConnectionError):  # noqa: N818
    """The pipeline's machine does not answer, or has forgotten this one."""


def secret_file() -> Path:
    """Return the file of this user's secret on this machine."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "loopline" / "join_secret"


def read_secret() -> str | None:
    """Return the secret of the variable, else of the file; None where there is neither."""
    if given := os.environ.get(SECRET_VARIABLE):
        return given
    with suppress(FileNotFoundError):
        return secret_file().read_text(encoding="utf-8").strip()
    return None


def made_secret() -> str:
    """Return this user's secret, made at first use in a file that nobody else can read."""
    if given := read_secret():
        return given
    file = secret_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        file.touch(0o600, exist_ok=False)
        file.write_text(secrets.token_urlsafe(32) + "\n", encoding="utf-8")
    return file.read_text(encoding="utf-8").strip()


class Channel:
    """The pipeline's machine, as another one asks it. Each question has a connection of its own."""

    def __init__(self, host: str, port: int, secret: str) -> None:
        self.host, self.port = host, port
        self._secret, self._session = secret, ""

    def join(self, coming: Coming) -> Offer:
        """Return a place. Raises Refused, NoPlace and PipelineLost."""
        try:
            offer = Offer.model_validate_json(self._ask("/join", coming))
        except ValidationError as error:
            raise Refused(
                f"{self.host}:{self.port}: not an offer of this version: {error.errors()[0]['msg']}"
            ) from None
        self._session = offer.session
        return offer

    def ready(self) -> None:
        """Say that this machine has all files. Raises PipelineLost."""
        self._ask("/ready")

    def news(self) -> News:
        """Return how the update stands; before it begins, only when it does or after a beat. Raises PipelineLost."""
        return News.model_validate_json(self._ask("/news"))

    def failed(self, reason: str) -> None:
        """Say that this machine's part has failed. Raises PipelineLost."""
        self._ask("/failed", Reason(reason=reason))

    def file(self, sha256: str, start: int) -> Iterator[bytes]:
        """Yield a file's bytes from number `start` on. Raises PipelineLost, also where they end early."""
        headers = self._headers() | ({"Range": f"bytes={start}-"} if start else {})
        with closing(self._connection(SILENCE_S)) as connection:
            try:
                connection.request("GET", f"/files/{sha256}", headers=headers)
                answer = connection.getresponse()
                if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # there is no more of it
                    return
                if answer.status != (HTTPStatus.PARTIAL_CONTENT if start else HTTPStatus.OK):
                    raise PipelineLost(f"file {sha256}: {answer.status} {answer.reason}")
                while piece := answer.read1(PIECE_BYTES):
                    yield piece
                if answer.length:
                    raise http.client.IncompleteRead(b"", answer.length)
            except (OSError, http.client.HTTPException) as error:
                lost = f"{self.host}:{self.port}: a file stopped coming ({error}); what came is kept"
                raise PipelineLost(lost) from None

    def _ask(self, path: str, message: Section | None = None) -> str:
        said = "" if message is None else message.model_dump_json()
        with closing(self._connection(SILENCE_S / 3)) as connection:
            try:
                connection.request("POST", path, said.encode(), self._headers())
                answer = connection.getresponse()
                text = answer.read(_MOST_SAID).decode()
            except (OSError, http.client.HTTPException) as error:
                raise self._lost(error) from None
        if answer.status != 200:
            raise _error(answer.status, text)
        return text

    def _lost(self, error: Exception) -> PipelineLost:
        return PipelineLost(f"{self.host}:{self.port}: {error}")

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._secret}", SESSION: self._session}


def _error(status: int, text: str) -> Exception:
    kinds = {401: Refused, 409: Refused, 503: NoPlace, 410: PipelineLost}
    try:
        return kinds[status](Reason.model_validate_json(text).reason)
    except (KeyError, ValidationError, json.JSONDecodeError):
        return Refused(f"something else than an update of loopline answers there ({status})")
