"""`loopline serve`: a world of ours for other trainers, by the OpenEnv protocol."""
