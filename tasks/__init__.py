"""The stages of the pipeline, a module or package each under its own name, and what several of them use (`core`).

Nothing here runs at import time; rooms that need no torch import none.
"""
