"""Faults of hosts that work on the same thing. Each happens to the last of them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.hosts.network import Host
from tests.hosts.parts import trains_on
from tests.hosts.ray_parts import is_sent_files, plays_on


@dataclass
class Scene:
    """Hosts at work, of which the first has the project and runs the pipeline."""

    hosts: list[Host]
    pipeline: "subprocess.Popen[str]"
    happened_at: float = field(default_factory=time.monotonic)

    @property
    def last(self) -> Host:
        """Host to which faults happen."""
        return self.hosts[-1]

    def cut(self, seconds: float | None = None) -> None:
        """Cut the last host's link, for good or for a time."""
        self.happened_at = time.monotonic()
        self.last.cut()
        if seconds is not None:
            time.sleep(seconds)
            self.last.mend()

    def kill(self, process: int) -> None:
        """Kill a process."""
        self.happened_at = time.monotonic()
        os.kill(process, signal.SIGKILL)


Fault = Callable[[Scene], None]


def none(scene: Scene) -> None:
    """Let them be."""


def link_cut(scene: Scene) -> None:
    """Cut the link for good."""
    scene.cut()


def link_cut_for_ten_seconds(scene: Scene) -> None:
    """Cut the link and mend it."""
    scene.cut(10)


def link_cut_while_files_are_sent(scene: Scene) -> None:
    """Cut the link, which is slow, when the first file is on its way, and mend it after ten seconds."""
    scene.last.slow("1mbit")
    is_sent_files(scene.last, scene.pipeline)
    scene.cut(10)


def link_cut_long_while_files_are_sent(scene: Scene) -> None:
    """Cut the link, which is slow, when the first file is on its way, and mend it when the host was given up."""
    scene.last.slow("1mbit")
    is_sent_files(scene.last, scene.pipeline)
    scene.cut(100)


def host_killed(scene: Scene) -> None:
    """Kill every process of the host."""
    scene.kill(scene.last.holder)


def rank_killed(scene: Scene) -> None:
    """Kill the host's rank."""
    scene.kill(trains_on(scene.last, scene.pipeline))


def worker_killed(scene: Scene) -> None:
    """Kill the host's worker."""
    scene.kill(plays_on(scene.last, scene.pipeline))


def clock_off(scene: Scene) -> None:
    """Let them be: the clock of the last host, as Python sees it, is an hour ahead."""


def link_slow(scene: Scene) -> None:
    """Let a megabit a second through to the host."""
    scene.last.slow("1mbit")
