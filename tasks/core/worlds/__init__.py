"""Worlds: where episodes are played. `interface` is the contract; each sub-package is one world."""
