"""Code that runs in BFCL's own interpreter: standard library, `bfcl_eval` and `..confinement.inside` only.

    zygote          imports the package once; forks players and the engine, knows no task
      plain player    decodes and executes turns that are plain calls, of one episode after another; evaluates no text
      player          does so with one episode's turns whatever they hold; has its task's initial state, one descriptor
      engine          loads tasks and ground truth; forks judges and examiners
        judge           describes tasks, recites solutions, judges what players decoded; evaluates no text
        examiner        the package's own conversation and evaluation, on recorded turns; evaluates text, so confined

The package evaluates agents' text. A player that does can reach no file, network, other process or ground truth.
"""
