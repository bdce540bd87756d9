"""The package's own HTTP server (`appworld serve environment`): the compatible fallback, and the reference in tests.

Slower than the pool and less safe: agents' code shares the server's process with the databases, so it can read every
password there. It is kept to the loopback address and never sees the ground truth when it gets an agent root.
"""

from tasks.core.worlds.appworld.official_server.episode import OfficialEpisode, OfficialServers
from tasks.core.worlds.appworld.official_server.server import OfficialServer, ServerError, ServerLimits, make_agent_root

__all__ = ["OfficialEpisode", "OfficialServer", "OfficialServers", "ServerError", "ServerLimits", "make_agent_root"]
