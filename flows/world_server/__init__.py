"""`python -m flows.world_server`: a world of ours for other trainers, by the OpenEnv protocol."""
