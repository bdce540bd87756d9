"""The vLLM engine: a server process in an interpreter of its own, token ids in, token ids and log-probs out.

`launching` describes how a server is started, and `supervisor` is the process that it lives and dies with. `servers`
finds, starts or waits for all servers of the engine, ours or external. `client` talks to one server, `server_pool`
gives them the policy, and `delivery` proves that they sample from it. `engine` is the Engine over them all.
"""
