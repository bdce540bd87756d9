"""The confined side: standard library, `processes.parent_death` and this package only, for any interpreter.

Agents' code can reach all of it.
"""
