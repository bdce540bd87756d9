"""An SSH server that serves files to one key: `python -m tests.hosts.ssh_server ADDRESS FOLDER`.

FOLDER has its key `host_key` and the client's `client_key.pub`. A real one (asyncssh), for machines without sshd.
"""

import asyncio
import sys
from pathlib import Path

import asyncssh


async def serve(address: str, folder: Path) -> None:
    """Serve SFTP on port 8022 until the process ends."""
    server = await asyncssh.listen(
        address,
        8022,
        server_host_keys=[str(folder / "host_key")],
        authorized_client_keys=str(folder / "client_key.pub"),
        sftp_factory=True,
    )
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
