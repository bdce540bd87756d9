"""The confined side. Uses only the standard library and `processes.running`, so that any interpreter can run it.

Agents' code can reach everything in it.
"""
