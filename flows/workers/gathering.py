"""The machines of one update, as the pipeline's knows them: who has a place, what all wait for, who is lost."""

import logging
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from flows.dag.stage_code import module_version
from flows.dag.stages import stage_label
from flows.workers.environment import difference, environment
from flows.workers.join_channel import BEAT_S, SILENCE_S, Coming, News, NoPlace, Offer, Refused
from flows.workers.needed_folders import NeededFile, NeededFolder
from tasks.core.interfaces.machines import Place, free_port
from tasks.core.learner.launcher import RANK_MODULE, RankFailed
from tasks.core.learner.rendezvous import LONGEST_WAIT_S
from tasks.core.learner.update_job import UpdateJob, read_files
from tasks.core.processes.shown_work import duration
from tasks.core.records.remembered_digests import remembered_digest

CODE = Path(__file__).resolve().parents[2]
SAY_EVERY_S = 60.0
AGAIN = "; nothing was saved, run the same command again"
_LOOK_S = 0.2
_SOON_S = 5.0
"""Machines that wait for updates come within this time, and nothing is said."""
_log = logging.getLogger(__name__)


@dataclass
class Guest:
    """A machine with a place."""

    number: int
    name: str
    heard_at: float
    is_ready: bool = False
    knows_end: bool = False


class Gathering:
    """The machines of one update. Each connection to the server has a thread, which calls this."""

    def __init__(self, label: str, job: UpdateJob, address: str, cache_bytes: float) -> None:
        self.label, self._job, self._cache_bytes = label, job, cache_bytes
        self.place = Place(0, (address, free_port()), address)
        self._needs = _needed_folders(job)
        self.paths = {sha256: need.path / name for need in self._needs for name, sha256 in need.files}
        self._code, self._environment = module_version(RANK_MODULE, CODE), environment()
        self._lock = threading.Condition()
        self._guests: dict[str, Guest] = {}
        self._told: set[str] = set()
        self._news, self._broken = News(state="gathering"), threading.Event()

    @property
    def nodes(self) -> int:
        """Machines in all."""
        return self._job.inputs.update.distributed.nodes

    def join(self, coming: Coming, address: str) -> Offer:
        """Give a machine a place. Raises Refused (other code or versions) and NoPlace."""
        name = f"{coming.host} ({address})"
        if fault := self._fault(coming):
            self._say_once(f"{self.label}: refused: {fault}")
            raise Refused(fault)
        with self._lock:
            if self._news.state == "ended":
                raise NoPlace(f"{self.label} is over")  # a machine that had its place is back sooner than all know it
            self._drop_silent()
            free = set(range(1, self.nodes)) - {guest.number for guest in self._guests.values()}
            if not free or self._news.state != "gathering":
                held = ", ".join([socket.gethostname(), *(guest.name for guest in self._guests.values())])
                self._say_once(f"{self.label}: {name} came, too; update.distributed.nodes is {self.nodes} ({held})")
                raise NoPlace(f"{self.label} has its {self.nodes} machines ({held})")
            session, number = secrets.token_hex(16), min(free)
            self._guests[session] = Guest(number, name, time.monotonic())
        return Offer(
            session=session,
            number=number,
            store_port=self.place.store[1],
            label=self.label,
            last=self.label == stage_label("update_policy", max(self._job.inputs.previous)),
            job=self._job,
            needs=self._needs,
            cache_bytes=self._cache_bytes,
        )

    def hear(self, session: str) -> Guest | None:
        """Note a sign of life; return whose it is, None for a machine without a place."""
        with self._lock:
            if guest := self._guests.get(session):
                guest.heard_at = time.monotonic()
            return guest

    def news(self, guest: Guest) -> News:
        """Return how the update stands, for a machine that asks; one that waits for the begin hears of it at once."""
        with self._lock:
            self._lock.wait_for(lambda: self._news.state != "gathering", BEAT_S)
            guest.knows_end = self._news.state == "ended"
            return self._news

    def _tell(self, news: News) -> None:
        with self._lock:
            self._news = news
            self._lock.notify_all()

    def fail(self, guest: Guest, reason: str) -> None:
        """Take a machine's word that its part has failed: the update has, if it was going, else its place is free."""
        reason = reason.partition(AGAIN)[0].rpartition(f"@{self._job.key}: ")[2]
        with self._lock:
            if self._news.state == "going":
                self._break(f"{self.label}: host {guest.name}: {reason}")
                guest.knows_end = True
            else:
                self._leave(guest, reason)

    def wait(self) -> None:
        """Wait until every place is taken and has its files; say what is waited for, soon and each minute.

        Raises RankFailed after half an hour.
        """
        since = time.monotonic()
        say_at = since + _SOON_S
        while not self._all_ready():
            now = time.monotonic()
            if now - since >= LONGEST_WAIT_S:
                raise RankFailed(f"{self._lack()}; gave up after {duration(now - since)}", says_all=True)
            if now >= say_at:
                say_at += SAY_EVERY_S
                _log.warning("%s. Waiting: %s of %s", self._lack(), duration(now - since), duration(LONGEST_WAIT_S))
            time.sleep(_LOOK_S)
        _log.warning("%s: training on %s", self.label, ", ".join(self.work()))

    def work(self) -> dict[str, str]:
        """Return what each machine does."""
        ranks, names = self._job.inputs.update.distributed.ranks, [socket.gethostname()]
        names += [guest.name for guest in self._by_number()]
        return {name: f"trains, {_numbers(place * ranks, ranks)}" for place, name in enumerate(names)}

    def broken(self, patience_s: float = 0) -> str | None:
        """Return why the update can't go on: a machine is silent, or has said that its part failed."""
        deadline = time.monotonic() + patience_s
        while True:
            with self._lock:
                for guest in self._silent():
                    self._break(
                        f"{self.label}: host {guest.name}: no sign of life for {SILENCE_S:g} s: "
                        "the machine is down, or its link is cut"
                    )
            if self._broken.wait(min(_LOOK_S, max(0, deadline - time.monotonic()))):
                return f"{self._news.reason}{AGAIN}"
            if time.monotonic() >= deadline:
                return None

    def end(self, reason: str | None) -> None:
        """Tell all machines that the update is over; wait for those that can hear it."""
        self._tell(News(state="ended", reason=reason and reason.partition(AGAIN)[0]))
        deadline = time.monotonic() + 5 * BEAT_S
        while time.monotonic() < deadline and not self._all_know_the_end():
            time.sleep(_LOOK_S / 2)

    def _all_ready(self) -> bool:
        with self._lock:
            self._drop_silent()
            ready = len(self._guests) == self.nodes - 1 and all(guest.is_ready for guest in self._guests.values())
            if ready:
                self._tell(News(state="going"))
            return ready

    def _all_know_the_end(self) -> bool:
        with self._lock:
            return all(guest.knows_end for guest in self._guests.values())

    def _fault(self, coming: Coming) -> str | None:
        if found := difference(coming.environment, self._environment):
            return f"host {coming.host}: {found}; install .ci/constraints.txt's versions on both (.ci/setup.sh)"
        if coming.code != self._code:
            return f"host {coming.host}: its code of the learner is not the pipeline's; bring both to the same commit"
        return None

    def _silent(self) -> list[Guest]:
        now = time.monotonic()
        return [guest for guest in self._guests.values() if now - guest.heard_at >= SILENCE_S and not guest.knows_end]

    def _drop_silent(self) -> None:
        """Free the places of machines that were lost before the update began."""
        for guest in self._silent() if self._news.state == "gathering" else ():
            self._leave(guest, f"no sign of life for {SILENCE_S:g} s")

    def _leave(self, guest: Guest, reason: str) -> None:
        self._guests = {session: one for session, one in self._guests.items() if one is not guest}
        if self._news.state == "gathering":
            _log.warning("%s: host %s is gone: %s", self.label, guest.name, reason)

    def _break(self, reason: str) -> None:
        if self._news.state == "going":
            self._tell(News(state="ended", reason=reason))
            self._broken.set()

    def _by_number(self) -> list[Guest]:
        return sorted(self._guests.values(), key=lambda guest: guest.number)

    def _lack(self) -> str:
        with self._lock:
            come = ", ".join(guest.name for guest in self._by_number()) or "none"
            fetching = [guest.name for guest in self._by_number() if not guest.is_ready]
            missing = self.nodes - 1 - len(self._guests)
        if not missing:
            return f"{self.label}: {', '.join(fetching)} fetches files"
        where = self._job.inputs.update.distributed.rendezvous
        return f"{self.label}: {missing} more machines needed (here: {come}); run `loopline join {where}` there"

    def _say_once(self, line: str) -> None:
        with self._lock:
            if line not in self._told:
                self._told.add(line)
                _log.warning("%s", line)


def _numbers(first: int, count: int) -> str:
    return f"rank {first}" if count == 1 else f"ranks {first} to {first + count - 1}"


def _needed_folders(job: UpdateJob) -> tuple[NeededFolder, ...]:
    """Return what ranks read, by content: the base policy, and the files of iterations."""
    base, iterations = job.layout.base_policy, job.layout.iteration("*").parent
    files = [file for file in read_files(job) if file.is_relative_to(iterations)]
    named = tuple(NeededFile(file.relative_to(iterations).as_posix(), remembered_digest(file)) for file in files)
    return NeededFolder.of(base), NeededFolder(iterations, named)
