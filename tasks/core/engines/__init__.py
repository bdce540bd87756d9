"""Engines, which sample tokens. Each folder is an engine, found by its name (tasks/core/interfaces/engine_kind.py)."""
