"""Code that runs in τ²-bench's own interpreter: standard library, `tau2` and `..confinement.inside` only.

    zygote        imports the package and loads both databases once; forks players and the engine, knows no task
      player      one episode's environment: executes its calls; has the task's initial state, one descriptor
      engine      loads the tasks; forks judges
        judge     lists and describes tasks, recites solutions, runs the package's own evaluation of an episode

A player has nothing that an agent must not see: no assertions, no solutions, no other task.
"""
