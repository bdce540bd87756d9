"""vLLM's API server with one setting applied first; run as a file in vLLM's own interpreter.

Without it, garbage collection over everything the server imports takes a fifth of 6.7 s, and again in the engine's
process, which vLLM starts with this file as its main module (see tasks/core/processes/resources.py, which vLLM's
interpreter cannot import).
"""

import gc
import runpy

if __name__ in ("__main__", "__mp_main__"):
    gc.set_threshold(700, 10, 1000)
if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
