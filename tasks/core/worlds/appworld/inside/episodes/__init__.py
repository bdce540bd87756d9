"""Episodes in AppWorld's own interpreter: a tree of forked processes, each with one subject.

    zygote          imports the engine once; forks shells and the engine's process
      shell           runs one episode's agent code; holds no state of the world; its one descriptor leads to its world
      engine          loads the base databases, warms up on one task's data; forks worlds and evaluators
        world           answers one shell's HTTP requests on its own copy of the databases; keeps the log
        evaluator       replays a world's recorded changes, reads the ground truth, answers with the verdict

A shell lives for one episode. Worlds and evaluators run no agent's code and serve one episode after another: what an
episode changed in their databases is put back, as the official server does when it is initialised again.
Agents' code never shares a process with the databases, the ground truth or the evaluator.
"""
