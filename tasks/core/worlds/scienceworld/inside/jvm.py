"""A Java virtual machine with ScienceWorld's simulator, and py4j's gateway to it."""

import logging
import resource
from pathlib import Path

import scienceworld
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

_PACKAGE = Path(scienceworld.__file__).parent  # the simulator reads its table of types from the working directory
_OPTIONS = (
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",  # identity hashes decide the order of sets, and with them what a replay does
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",  # the simulator would catch it and charge the agent for it
    "-XX:-UsePerfData",
    "-XX:+DisableAttachMechanism",
    "-Xss4m",
)

logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a JVM that died is said once, by us


class Jvm:
    """A live JVM. It ends with this process, whose pipe it reads."""

    def __init__(self, java: str, heap_mib: int) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        port, token, self._process = launch_gateway(
            classpath=str(_PACKAGE / "scienceworld.jar"),
            javaopts=[*_OPTIONS, f"-Xmx{heap_mib}m"],
            java_path=java,
            cwd=str(_PACKAGE),
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
        self.gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))

    @property
    def pid(self) -> int:
        """Process id."""
        return int(self._process.pid)

    def kill(self) -> None:
        """End it at once, and wait for its end."""
        self._process.kill()
        self._process.wait()
