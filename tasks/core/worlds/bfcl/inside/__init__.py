"""Code that runs in BFCL's own interpreter: standard library, `bfcl_eval` and `..confinement.inside` only.

    zygote          imports the package once; forks players and the engine, knows no task
      plain player    decodes and executes turns of plain calls, of one episode after another; evaluates no text
      player          does so with any turns of one episode; has its task's initial state, one descriptor
      engine          loads tasks and ground truth; forks judges and examiners
        judge           describes tasks, recites solutions, judges the players' decoded calls; evaluates no text
        examiner        the package's own conversation and evaluation, on recorded turns; evaluates text, so confined

The package evaluates agents' text as Python. A player that does so can reach no file, network, other process or ground
truth.
"""
