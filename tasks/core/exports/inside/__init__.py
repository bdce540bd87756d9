"""Code that runs in a fresh process with transformers alone."""
