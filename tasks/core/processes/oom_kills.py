"""Evidence that the system kills processes because memory has run out."""

from pathlib import Path

_VMSTAT = Path("/proc/vmstat")


def oom_kills() -> int | None:
    """Processes that the kernel has killed for lack of memory since it booted, in all containers; None off Linux."""
    try:
        lines = _VMSTAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
