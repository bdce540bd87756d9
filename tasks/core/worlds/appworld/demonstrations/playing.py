"""Demonstrations of a whole root: each task's walkthrough, played turn by turn in the engine."""

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tasks.core.interfaces.world import Episode, Message
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.records.files import load_json
from tasks.core.worlds.appworld import layout
from tasks.core.worlds.appworld.demonstrations.habits import (
    GUESSES,
    IMPERFECT,
    PERFECT,
    Habits,
    chatty,
    first_found,
    misnamed,
    paged,
    slipped,
)
from tasks.core.worlds.appworld.kind import APPWORLD, AppWorldConfig
from tasks.core.worlds.appworld.pool import EpisodePool
from tasks.core.worlds.appworld.world import AppWorldEpisode

_TRIES = 3
_LOGIN = (
    "profile = apis.supervisor.show_profile()\n"
    "passwords = {x['account_name']: x['password'] for x in apis.supervisor.show_account_passwords()}\n"
)


@dataclass(frozen=True)
class Step:
    """A turn of a walkthrough."""

    thought: str
    code: str


class GivesUp(Exception):  # noqa: N818
    """The agent stops working on its task."""


class Demonstrator:
    """Plays one episode; `messages` is the conversation so far, `done` whether the task was completed.

    Reads the documents of the APIs that it will call, logs in, then takes the steps one after the other; each of these
    goes wrong as its habits have it. An error is met by reading the documents and trying again, or by giving up.
    """

    def __init__(self, episode: Episode, steps: Sequence[Step], habits: Habits, random: Random) -> None:
        self._episode, self._habits, self._random = episode, habits, random
        self._work, self._last = [Step(step.thought, step.code) for step in steps[:-1]], steps[-1]
        self.messages: list[Message] = list(episode.prompt)
        self.done = False
        self._apis = _apis(self._work)
        self._informed = not self._happens(habits.guess_documents)
        self._misnames = {name for name in GUESSES if self._happens(habits.wrong_guess)}
        self._one_page, self._assumes = self._happens(habits.one_page), self._happens(habits.assume)
        self._began = False

    def play(self) -> None:
        """Play to the end."""
        try:
            if not self._happens(self._habits.finish_early):
                self._prepare()
                self._take(self._work)
                self._complete()
            else:
                self._say("That should work.", "apis.supervisor.complete_task()")
        except GivesUp:
            if not self.done:
                status = "" if self._happens(self._habits.claim_success) else "status='fail'"
                self._say("I give up." if status else "That should do.", f"apis.supervisor.complete_task({status})")

    def _prepare(self) -> None:
        if self._informed:
            self._read_documents("First I read the docs.")
        for app in self._apis:
            self._log_in(app)

    def _take(self, steps: Sequence[Step]) -> None:
        skipped = -1
        for place, step in enumerate(steps):
            if place == skipped and self._happens(0.5):
                continue  # it believes that the second block of the turn before was executed
            code = paged(step.code, self._one_page)
            thought = step.thought
            if self._assumes and "next(" in code:
                code, thought = first_found(code), "I assume that it is the first one."
            if self._happens(self._habits.slip):
                code = slipped(code)
            second = ""
            if place + 1 < len(steps) and self._happens(self._habits.two_blocks):
                second, skipped = paged(steps[place + 1].code, self._one_page), place + 1
            self._try(thought, code, second)

    def _try(self, thought: str, code: str, second: str) -> None:
        for _ in range(_TRIES):
            names = () if self._informed else self._misnames
            extra = f"\n```python\n{misnamed(second, names)}\n```" if second else ""
            if not self._say(thought, misnamed(code, names), extra):
                return
            if self._happens(self._habits.give_up):
                raise GivesUp
            if not self._informed:
                self._read_documents("I must read the docs.")
        raise GivesUp

    def _complete(self) -> None:
        code = self._last.code
        if self._happens(self._habits.no_completion):
            self._say_text("All is done.")
        if "answer=" not in code and self._happens(self._habits.needless_answer):
            code = "apis.supervisor.complete_task(answer='Done')"
        if "answer=" in code and self._happens(self._habits.chatty):
            code = chatty(code)
        self._say(self._last.thought, code)
        if not self.done:
            raise GivesUp

    def _read_documents(self, thought: str) -> None:
        for app, names in self._apis.items():
            listed = f"({', '.join(map(repr, names))}{',' if len(names) == 1 else ''})"
            self._say(
                thought,
                f"for name in {listed}:\n    print(name, [p['name'] for p in "
                f"apis.api_docs.show_api_doc(app_name={app!r}, api_name=name)['parameters']])",
            )
        self._informed = True

    def _log_in(self, app: str) -> None:
        phone = app == "phone" and not self._happens(self._habits.email_for_phone)
        password = "'dummy'" if not self._began and self._happens(self._habits.dummy) else f"passwords[{app!r}]"
        for _ in range(_TRIES):
            user = "phone_number" if phone else "email"
            call = f"{app}_token = apis.{app}.login(username=profile[{user!r}], password={password})['access_token']"
            failed = self._say(
                "I try a dummy password." if password == "'dummy'" else f"I log in to {app}.",
                call if self._began else _LOGIN + call,
            )
            self._began = True
            if not failed:
                return
            if self._happens(self._habits.give_up):
                raise GivesUp
            phone, password = app == "phone", f"passwords[{app!r}]"
        raise GivesUp

    def _say(self, thought: str, code: str, extra: str = "") -> bool:
        """Take a turn; returns whether its code failed."""
        spoken = self._happens(self._habits.thought) or "assume" in thought or "dummy" in thought
        return self._say_text(f"{thought}\n" * spoken + f"```python\n{code}\n```{extra}")

    def _say_text(self, text: str) -> bool:
        self.messages.append({"role": "assistant", "content": text})
        observation = self._episode.step(text)
        self.done = observation.done
        if not self.done:
            self.messages.append({"role": "user", "content": observation.text + observation.ending})
        return observation.failed

    def _happens(self, probability: float) -> bool:
        return self._random.random() < probability


def _apis(steps: Sequence[Step]) -> dict[str, list[str]]:
    """The APIs that the steps call, by app, each app in the order of its first call."""
    found: dict[str, list[str]] = {}
    for app, api in re.findall(r"apis\.(\w+)\.(\w+)", json.dumps([step.code for step in steps])):
        names = found.setdefault(app, [])
        if api not in names:
            names.append(api)
    return found


@dataclass(frozen=True)
class Demonstration:
    """One played episode."""

    task_id: str
    imperfect: bool
    messages: list[Message]
    success: bool


def play_demonstrations(
    root: Path, perfect: int, imperfect: int, workers: int = 2, tasks: int | None = None
) -> Iterator[Demonstration]:
    """Play every task of the split `demonstrations` so many times each way, in order; the first `tasks` if given.

    The same root gives the same demonstrations, whatever `workers` (episodes at once).
    """
    ids = layout.dataset(root, "demonstrations").read_text(encoding="utf-8").split()[:tasks]
    habits = [(PERFECT, "perfect", number) for number in range(perfect)]
    habits += [(IMPERFECT, "imperfect", number) for number in range(imperfect)]
    pool = EpisodePool(python_executable(INTERPRETERS, APPWORLD), root)
    try:
        with ThreadPoolExecutor(workers) as threads:
            jobs = [
                threads.submit(_play, root, pool, task_id, habit, f"{root.name}:{task_id}:{kind}:{number}")
                for task_id in ids
                for habit, kind, number in habits
            ]
            for job in jobs:
                yield job.result()
    finally:
        pool.close()


def _play(root: Path, pool: EpisodePool, task_id: str, habits: Habits, seed: str) -> Demonstration:
    hint = "author the root anew"
    walkthrough = load_json(layout.walkthrough(root, task_id), list, missing=hint, damaged=hint)
    episode = AppWorldEpisode(pool.open(task_id), AppWorldConfig())
    try:
        demonstrator = Demonstrator(episode, [Step(**step) for step in walkthrough], habits, Random(seed))
        demonstrator.play()
        return Demonstration(task_id, habits is IMPERFECT, demonstrator.messages, episode.evaluate().success)
    finally:
        episode.close()
