"""The vLLM engine: a server process in an interpreter of its own, token ids in, token ids and log-probs out.

`launching` says how a server is started, `supervisor` is the process that it lives and dies with, `own_server` finds or
starts one, `server_provider` has the engine's servers up, own or external ones, `client` speaks to one, `server_pool`
gives them the policy, `weight_sync_check` proves that they sample from it, `engine` is the Engine over them all.
"""
