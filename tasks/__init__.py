"""The stages of the pipeline, each a module or package of its own name, and the code that several of them use (`core`).

Nothing here runs at import time; packages that need no torch do not import it.
"""
