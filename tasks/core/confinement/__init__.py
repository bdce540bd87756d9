"""Confined processes: how they are started, forked, spoken with, ended, and whose fault their end was.

`inside` runs in the confined processes and in those that fork them, in whatever interpreter; the rest in the pipeline.
The sandbox of pocketworld, AppWorld's pool and BFCL's are built on it.
"""
