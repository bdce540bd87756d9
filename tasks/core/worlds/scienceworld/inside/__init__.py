"""The simulators' side, in ScienceWorld's own interpreter: standard library, py4j and `core.confinement.inside` only.

    zygote ── simulator process ── JVM        one pair for each core or so; many episodes live in one JVM

A simulator process leaves the network before it starts its JVM, so that the two have a loopback of their own and
nothing else; py4j's port asks for a token. The agent's text reaches the JVM as one string that the simulator's parser
reads.
"""
