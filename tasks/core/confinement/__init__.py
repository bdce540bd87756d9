"""Confined processes: starting, forking, messaging and ending them, and judging whose fault a death was.

`inside` runs in the confined processes and in the processes that fork them, under any interpreter; the rest runs in the
pipeline. The sandbox of pocketworld and the pools of AppWorld and τ²-bench hold a `ProcessPool`.
"""
