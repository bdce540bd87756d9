"""Paid answers that no written result contains yet, kept so that an attempt after a failure requests only the rest.

They are in one small SQLite file: whatever kills the process, an answer is stored whole or not at all, and processes
may share the file. It holds digests of requests, never a prompt or the key. A task's answers are deleted when a result
on that task is written, or LONGEST_DAYS after payment if nobody used them. `Spending` adds up what answers cost.
"""

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tasks.core.chat_servers.answers import ChatApiError, ChatTurn
from tasks.core.chat_servers.settings import Traffic
from tasks.core.interfaces.engine import GenerationRequest
from tasks.core.records.timings import ApiUsage

PAID_ANSWERS = Path(".loopline") / "paid_answers.sqlite"
LONGEST_DAYS = 30
DAY_S = 86_400.0
LOCK_S = 60.0
"""How long another process may keep the file locked."""
OPENING = (
    "PRAGMA auto_vacuum = FULL",  # deleted answers free their disk space
    "CREATE TABLE IF NOT EXISTS answers (request TEXT PRIMARY KEY, task TEXT, paid_at REAL, paid TEXT)",
)


@dataclass(frozen=True)
class PaidAnswer:
    """An answer, and how many requests it took."""

    answer: ChatTurn
    attempts: int


_PAID: TypeAdapter[PaidAnswer] = TypeAdapter(PaidAnswer)


def request_key(asked: dict[str, Any], request: GenerationRequest) -> str:
    """Return the digest of the request `asked` and of its sample: the conversation's name and the turn's seed."""
    content = json.dumps([asked, request.sequence_id, request.seed], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


class PaidAnswers:
    """The file of paid answers.

    Thread-safe. Every method raises ChatApiError when the file cannot be read or written.
    """

    def __init__(self, path: Path = PAID_ANSWERS) -> None:
        self._path, self._lock = path, threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._explained():
            self._file = sqlite3.connect(path, timeout=LOCK_S, isolation_level=None, check_same_thread=False)
        for statement in OPENING:
            self._execute(statement)
        self._execute("DELETE FROM answers WHERE paid_at < ?", (time.time() - LONGEST_DAYS * DAY_S,))

    def find(self, key: str) -> PaidAnswer | None:
        """Return the answer stored under `key`, if there is one that this code can read."""
        rows = self._execute("SELECT paid FROM answers WHERE request = ?", (key,))
        try:
            return _PAID.validate_json(rows[0][0]) if rows else None
        except ValidationError:
            return None

    def keep(self, key: str, task: str, paid: PaidAnswer) -> None:
        """Store an answer on `task` under `key`; it is on disk when this returns."""
        row = (key, task, time.time(), _PAID.dump_json(paid).decode())
        self._execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", row)

    def drop(self, tasks: Iterable[str]) -> None:
        """Delete the answers on these tasks, all or none."""
        self._execute("DELETE FROM answers WHERE task IN (SELECT value FROM json_each(?))", (json.dumps([*tasks]),))

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self._explained(), self._lock:
            return self._file.execute(statement, values).fetchall()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ChatApiError(
                f"{self._path}: cannot use this store of paid answers: {error}. Free disk space or fix its "
                "permissions; if it is damaged, delete it, and the next run buys the answers again"
            ) from None


class Spending:
    """Totals since they were last taken. Only the provider knows the tokens of failed attempts.

    Each answer counts once, no matter which attempt at the stage paid for it: a result does not show how it was
    obtained.
    """

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._paid: list[PaidAnswer] = []
        self._paid_earlier: list[PaidAnswer] = []

    def add(self, paid: PaidAnswer, earlier: bool) -> None:
        """Count an answer; `earlier` says that a previous attempt paid for it."""
        (self._paid_earlier if earlier else self._paid).append(paid)

    def take(self) -> ApiUsage:
        """Return the totals and reset them to 0. Prints how much an earlier attempt had paid for, if anything."""
        usage = self._usage(self._paid + self._paid_earlier)
        if self._paid_earlier:
            print(f"chat_api: {self.said()}")
        self._paid, self._paid_earlier = [], []
        return usage

    def said(self) -> str:
        """Return the totals in words."""
        earlier = self._usage(self._paid_earlier)
        totals = _in_words(self._usage(self._paid + self._paid_earlier))
        return totals + (f"; an earlier attempt had paid for {_in_words(earlier)} of it" if earlier.answers else "")

    def _usage(self, paid: Sequence[PaidAnswer]) -> ApiUsage:
        answers = [paid_answer.answer for paid_answer in paid]
        prompt = sum(answer.prompt_tokens for answer in answers)
        cached = sum(answer.cached_tokens for answer in answers)
        sampled = sum(answer.answer_tokens for answer in answers)
        return ApiUsage(
            models=tuple(sorted({answer.model for answer in answers if answer.model})),
            answers=len(answers),
            retries=sum(paid_answer.attempts - 1 for paid_answer in paid),
            prompt_tokens=prompt,
            cached_tokens=cached,
            answer_tokens=sampled,
            cost_usd=self._traffic.cost_usd(prompt - cached, cached, sampled),
        )


def _in_words(usage: ApiUsage) -> str:
    tokens = f"{usage.prompt_tokens:,} prompt and {usage.answer_tokens:,} answer tokens"
    return f"{usage.answers:,} answers, {tokens}, {usage.cost_usd:,.2f} USD"
