"""The vLLM engine: a server process in an environment of its own, token ids in, token ids and log-probs out.

`launching` says how a server is started, `keeper` is the process that it lives and dies with, `own_servers` finds or
starts servers, `client` speaks to one, `delivery` proves that a server samples from the policy it was given, `engine`
is the Engine over them all.
"""
