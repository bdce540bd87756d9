"""Code that runs in the interpreter of verifiers: standard library, `verifiers` and `..confinement.inside` only.

    zygote        loads the environment and its tasks once; lists them; forks players
      player      one episode: the environment's own loop; in place of a model it asks whoever holds its socket

A player is confined before it sees a line of an agent: it opens no file, no socket and no process. It holds its task
with the answer, and its rubric; an agent's text is data there, unless a tool of the environment runs it.
"""
