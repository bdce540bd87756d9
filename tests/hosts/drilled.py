"""What host drills disturb: an update on all hosts, or rollouts that they play through Ray."""

import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tests.flows.tiny_project import copy_project, make_project, succeed
from tests.hosts.faults import (
    Fault,
    Scene,
    clock_off,
    host_killed,
    link_cut,
    link_cut_for_ten_seconds,
    link_cut_long_while_files_are_sent,
    link_cut_while_files_are_sent,
    link_slow,
    none,
    rank_killed,
    worker_killed,
)
from tests.hosts.network import Host
from tests.hosts.parts import finished, join, make_update, on_one_host, start_update, trains_on, waits
from tests.hosts.ray_parts import head, members, play_on_ray, plays_on, start_collection


class Work(Protocol):
    """Work of several hosts, of which the first has the project."""

    faults: tuple[Fault, ...]
    alone: tuple[Fault, ...]
    """Those that are tried on a single host, too."""
    early: tuple[Fault, ...]
    """Faults that happen before the hosts are at work."""
    ending: tuple[Fault, ...]
    """Faults that the work does not survive: it has to be begun again."""
    named: tuple[Fault, ...]
    """Faults that one line tells, with the host's name."""
    usual: tuple[str, ...]
    """Words of lines without a fault."""

    def expected(self, hosts: int) -> str:
        """Return the digest of what one host makes alone."""
        ...

    def prepared(self, folder: Path, hosts: int) -> Layout:
        """Make a project in which the work of so many hosts is next."""
        ...

    def begin(self, layout: Layout, hosts: list[Host]) -> "subprocess.Popen[str]":
        """Start the work, and return the pipeline's side."""
        ...

    def at_work(self, scene: Scene) -> dict[str, Any]:
        """Wait until the hosts are at work, and return what was measured until then."""
        ...

    def again(self, layout: Layout, hosts: list[Host], spare: Host | None) -> int:
        """Do ended work again, with a host in place of one that is gone; return the exit code."""
        ...

    def result(self, layout: Layout) -> Path:
        """Return what the work makes."""
        ...


class Update:
    """One update with a rank on each host."""

    faults = (
        none,
        link_cut,
        link_cut_for_ten_seconds,
        host_killed,
        rank_killed,
        clock_off,
        link_slow,
    )
    alone = early = ()
    ending = named = (link_cut, host_killed, rank_killed)
    usual = ("training on", "Waiting:", "log-probs differ", "Writing model shards", "base model:")
    """The engine's log-probs are made up."""

    def __init__(self, folder: Path) -> None:
        self.expected = cache(lambda hosts: on_one_host(folder, hosts))

    def prepared(self, folder: Path, hosts: int) -> Layout:
        return make_update(folder, nodes=hosts)

    def begin(self, layout: Layout, hosts: list[Host]) -> "subprocess.Popen[str]":
        pipeline = start_update(hosts[0], layout)
        waits(hosts[0], pipeline)
        self._joined_at = time.monotonic()
        for host in hosts[1:]:
            join(host)
        return pipeline

    def at_work(self, scene: Scene) -> dict[str, Any]:
        for host in scene.hosts[1:]:
            trains_on(host, scene.pipeline)
        return {"join_s": [round(time.monotonic() - self._joined_at, 1)]}

    def again(self, layout: Layout, hosts: list[Host], spare: Host | None) -> int:
        assert not self.result(layout).exists()
        if spare is not None:
            join(spare)
        return finished(start_update(hosts[0], layout))[0]

    def result(self, layout: Layout) -> Path:
        return layout.policy("i001")


class Rollouts:
    """An iteration's rollouts, in six shards, with a worker on each host."""

    alone = (none, worker_killed, clock_off)
    early = (link_slow, link_cut_while_files_are_sent, link_cut_long_while_files_are_sent)
    ending = ()
    named = (
        link_cut,
        host_killed,
        worker_killed,
        link_cut_long_while_files_are_sent,
    )
    faults = (
        none,
        link_cut,
        link_cut_for_ten_seconds,
        link_cut_while_files_are_sent,
        link_cut_long_while_files_are_sent,
        host_killed,
        worker_killed,
        clock_off,
        link_slow,
    )
    usual = (" rollouts, ",)

    def __init__(self, folder: Path) -> None:
        """Play by one process of one host."""
        settings = ("iterations=1", "collection.tasks_per_iteration=6", "collection.rollouts_per_task=20")
        self._played = make_project(folder / "one", *settings, "machines.processes=1")
        succeed(self._played, "-m", "flows.cli", "run", "--without-prefect", "--until", "collect_rollouts@i001")

    def expected(self, hosts: int) -> str:
        return digest(self.result(Layout(self._played)))

    def prepared(self, folder: Path, hosts: int) -> Layout:
        layout = Layout(copy_project(self._played, folder))
        self.result(layout).unlink()
        play_on_ray(folder, "collection.shards=6")
        return layout

    def begin(self, layout: Layout, hosts: list[Host]) -> "subprocess.Popen[str]":
        head(hosts[0], 1)
        members(hosts[1:])
        return start_collection(hosts[0], layout.root)

    def at_work(self, scene: Scene) -> dict[str, Any]:
        for host in scene.hosts:
            plays_on(host, scene.pipeline)
        return {}

    def again(self, layout: Layout, hosts: list[Host], spare: Host | None) -> int:
        raise AssertionError("no fault ends rollouts")

    def result(self, layout: Layout) -> Path:
        return layout.rollouts("i001")
