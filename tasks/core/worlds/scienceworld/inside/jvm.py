"""A Java virtual machine with ScienceWorld's simulator, and py4j's gateway to it."""

import logging
import os
import resource
import signal
import subprocess
from collections import deque
from pathlib import Path
from typing import Any

import scienceworld
from py4j.java_gateway import GatewayParameters, JavaGateway, OutputConsumer, find_jar_path

from tasks.core.processes.parent_death import parent_death_signal

_PACKAGE = Path(scienceworld.__file__).parent  # the simulator reads its table of types from the working directory
_OPTIONS = (
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",  # identity hashes determine the order of sets, and so what a replay does
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",  # the simulator would catch the error and charge the agent for it
    "-XX:-UsePerfData",
    "-XX:+DisableAttachMechanism",
    "-Xss4m",
)

logging.getLogger("py4j").setLevel(logging.CRITICAL)  # we report a dead JVM ourselves, once


class Jvm:
    """A live JVM. It ends with this process: by the kernel's signal, or when its pipe closes."""

    def __init__(self, java: str, heap_mib: int) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        # Like py4j's launch_gateway, with a signal added: a JVM that hangs during its start does not read its pipe.
        self._process = subprocess.Popen(
            [java, *_arguments(heap_mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_PACKAGE,
            preexec_fn=parent_death_signal(signal.SIGKILL),
        )
        output: Any = self._process.stdout
        port, token = int(output.readline()), output.readline().decode().strip()
        OutputConsumer(deque(maxlen=1), output, daemon=True).start()  # a full pipe would block the JVM
        self.gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))

    @property
    def pid(self) -> int:
        """Process id."""
        return int(self._process.pid)

    def kill(self) -> None:
        """Kill the JVM and wait for its end."""
        self._process.kill()
        self._process.wait()


def _arguments(heap_mib: int) -> list[str]:
    classpath = os.pathsep.join((find_jar_path(), str(_PACKAGE / "scienceworld.jar")))
    gateway = ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
    return ["-classpath", classpath, *_OPTIONS, f"-Xmx{heap_mib}m", *gateway]
