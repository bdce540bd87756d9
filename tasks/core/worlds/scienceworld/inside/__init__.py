"""The simulators' side, in ScienceWorld's own interpreter: standard library, py4j and `core.confinement.inside` only.

    zygote ── simulator process ── JVM        about one pair per core; many episodes live in one JVM

A simulator process leaves the network before it starts its JVM, so that the two share a loopback and nothing else;
py4j's port requires a token. The agent's text reaches the JVM as one string, which the simulator's parser reads.
"""
