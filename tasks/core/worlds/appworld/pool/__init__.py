"""Warm AppWorld episodes: processes forked from one that imported the engine (see `..inside.episodes`).

pool = EpisodePool(python, root)
episode = pool.open("82e2fac_1")
episode.run("print(apis.supervisor.show_active_task())").output
episode.evaluate()
episode.close()
"""

from tasks.core.worlds.appworld.pool.limits import PoolLimits
from tasks.core.worlds.appworld.pool.live_episode import LiveEpisode, ShellRun, Verdict
from tasks.core.worlds.appworld.pool.pool import EpisodePool

__all__ = ["EpisodePool", "LiveEpisode", "PoolLimits", "ShellRun", "Verdict"]
