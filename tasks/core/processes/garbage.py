"""Less frequent garbage collection, for a process that loads much and keeps it."""

import gc

_OLD = 1000
SPARING = f"import gc; gc.set_threshold(*gc.get_threshold()[:2], {_OLD})"
"""`spare_old_objects` as the first line of a program for an interpreter that cannot import this package."""


def spare_old_objects() -> None:
    """Collect all objects of this process after 7 million new objects instead of 70,000.

    By default Python does so whenever the living objects have grown by a quarter, which happens repeatedly while
    packages are imported: it takes a seventh of the import time of torch, transformers and peft and finds no garbage.
    Objects that die young are collected as before.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _OLD)
