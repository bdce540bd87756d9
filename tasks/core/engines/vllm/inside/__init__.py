"""Code that runs in vLLM's own interpreter: standard library only."""
