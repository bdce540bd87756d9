"""The command of every machine except the pipeline's own when update.distributed.nodes > 1.

It waits for updates (preflight's as well) of a pipeline, fetches what this machine lacks, takes part in each with this
machine's ranks, and goes on until it is stopped. The first rank is on the pipeline's machine, so nothing is written
here but the cache of what was sent.
"""

import logging
import os
import socket
import threading
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from flows.dag.stage_code import module_version
from flows.workers.content_cache import ContentCache, OwnProject, cache_folder
from flows.workers.environment import environment
from flows.workers.join_channel import (
    BEAT_S,
    SECRET_VARIABLE,
    SILENCE_S,
    Channel,
    Coming,
    News,
    NoPlace,
    Offer,
    PipelineLost,
    read_secret,
    secret_file,
)
from tasks.core.config.params import ParamsError
from tasks.core.interfaces.machines import Place
from tasks.core.learner.launcher import RANK_MODULE, RankFailed, import_launcher, start_ranks
from tasks.core.learner.rendezvous import endpoint, own_address
from tasks.core.records.files import ArtifactError

CODE = Path(__file__).resolve().parents[2]
_log = logging.getLogger("join")


def take_part(rendezvous: str) -> NoReturn:
    """Take part in every update of the pipeline at `rendezvous`, HOST:PORT.

    Raises ParamsError for a host without an address or without a secret here, and Refused. A failed update is logged:
    the pipeline's own machine decides what happens next.
    """
    if (secret := read_secret()) is None:
        raise ParamsError(
            f"{secret_file()}: missing; copy it from the pipeline's machine, which makes it at its first update with "
            f"several machines, or set {SECRET_VARIABLE} on both"
        )
    own_address(rendezvous, holds_store=False)
    host, port = endpoint(rendezvous)
    logging.basicConfig(format="%(asctime)s %(message)s")
    _log.setLevel(logging.INFO)
    _log.info("waiting for updates of %s", rendezvous)
    os.chdir(CODE)  # whose modules the ranks import, and where digests of large files are remembered
    channel, said = Channel(host, port, secret), ""
    with closing(_Folder()) as folder:
        while True:
            said = _look(channel, folder, rendezvous, said)
            import_launcher()  # while there is nothing else to do
            time.sleep(BEAT_S)


class _Folder:
    """This machine's copy of what ranks read."""

    def __init__(self) -> None:
        self._own: OwnProject | None = None

    def filled(self, channel: Channel, offer: Offer) -> Path:
        """Return the root of a project with all that the update needs, fetching what is in no earlier one.

        A machine that sees the pipeline's folder, with the same files in it, uses that. Raises PipelineLost and
        ArtifactError (a file changed on its way).
        """
        if all(need.is_here() for need in offer.needs):
            return offer.job.root
        self._own = self._own or OwnProject(ContentCache(cache_folder(), offer.cache_bytes), CODE)
        wanted = {sha256 for need in offer.needs for _, sha256 in need.files}
        self._own.fill(offer.job.root, offer.needs, {sha256: partial(channel.file, sha256) for sha256 in wanted})
        return self._own.folder

    def close(self) -> None:
        """Remove the copy; the cache stays."""
        if self._own is not None:
            self._own.close()


def _look(channel: Channel, folder: _Folder, rendezvous: str, said: str) -> str:
    """Take part if there is an update now; return what was last said of there being no place."""
    try:
        socket.create_connection((channel.host, channel.port), SILENCE_S / 3).close()
        coming = Coming(host=socket.gethostname(), environment=environment(), code=module_version(RANK_MODULE, CODE))
        offer = channel.join(coming)
    except NoPlace as error:
        if str(error) != said:
            _log.warning("%s; this one waits for a later update", error)
        return str(error)
    except OSError:  # nobody listens between two updates
        return said
    _take_part(channel, folder, offer, own_address(rendezvous, holds_store=False))
    return ""


def _take_part(channel: Channel, folder: _Folder, offer: Offer, address: str) -> None:
    ranks = offer.job.inputs.update.distributed.ranks
    _log.info("%s: joining with %d ranks", offer.label, ranks)
    place = Place(offer.number, (channel.host, offer.store_port), address)
    threading.Thread(target=import_launcher, daemon=True).start()  # files come meanwhile
    try:
        with closing(_Taking(channel, place)) as taking:
            root = folder.filled(channel, offer)
            channel.ready()
            if taking.begins():
                with TemporaryDirectory() as workplace:
                    start_ranks(offer.job.model_copy(update={"root": root}), Path(workplace), taking)
            taking.ended()
    except (RankFailed, ArtifactError, PipelineLost) as error:
        with suppress(PipelineLost):
            channel.failed(str(error))
        _log.error("%s", error)
    except BaseException:
        with suppress(PipelineLost):
            channel.failed("loopline join was stopped there")
        raise
    else:
        _log.info("%s: done%s", offer.label, ", the last update of the run" if offer.last else "")


class _Taking:
    """The update in which this machine takes part; a thread asks for news of it."""

    def __init__(self, channel: Channel, place: Place) -> None:
        self.place = place
        self._channel, self._over = channel, threading.Event()
        self._news, self._heard_at = News(state="gathering"), time.monotonic()
        self._asking = threading.Thread(target=self._ask, daemon=True)
        self._asking.start()

    def begins(self) -> bool:
        """Wait until all machines are there. Raises RankFailed where the update ends before."""
        while self._news.state == "gathering" and not self._lost():
            time.sleep(BEAT_S / 5)
        if reason := self.broken():
            raise RankFailed(reason, says_all=True)
        return self._news.state == "going"

    def broken(self, patience_s: float = 0) -> str | None:
        """Return why the update can't go on: the pipeline's machine says so, or says nothing."""
        deadline = time.monotonic() + patience_s
        while self._news.reason is None and not self._lost() and time.monotonic() < deadline:
            time.sleep(BEAT_S / 5)
        return self._news.reason or self._lost()

    def ended(self) -> None:
        """Wait for the pipeline's word that the update is over. Raises RankFailed where it failed after all."""
        while self._news.state != "ended" and not self._lost():
            time.sleep(BEAT_S / 5)
        if reason := self.broken():
            raise RankFailed(reason, says_all=True)

    def close(self) -> None:
        """Ask no more."""
        self._over.set()

    def _ask(self) -> None:
        pause_s = 0.0
        while not self._over.wait(pause_s) and self._news.state != "ended":
            pause_s = BEAT_S
            with suppress(PipelineLost):
                self._news = self._channel.news()
                self._heard_at = time.monotonic()
                if self._news.state == "gathering":
                    pause_s = 0.0  # the answer took a beat

    def _lost(self) -> str | None:
        if self._news.state == "ended" or time.monotonic() - self._heard_at < SILENCE_S:
            return None
        where = f"{self._channel.host}:{self._channel.port}"
        return f"{where}: no answer for {SILENCE_S:g} s: the pipeline has ended, or the link is cut"
