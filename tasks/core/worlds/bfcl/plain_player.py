"""A process that plays plain turns, of one episode after another (see `.inside.player`)."""

from tasks.core.confinement.confined_process import ConfinedProcess
from tasks.core.confinement.data_zygote import DataZygote


class PlainPlayer(ConfinedProcess):
    """A player of plain turns that `confinement.warm_processes` can keep."""

    def __init__(self, zygote: DataZygote, message_bytes: int) -> None:
        """Fork the process. Raises WorldFault."""
        super().__init__(zygote.forks, "player", message_bytes, plain=True)
        self.zygote = zygote
        self.uses = 0

    def end(self) -> None:
        """End the process. Idempotent, never raises."""
        self.close()
