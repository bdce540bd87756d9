"""The tasks as they are made: apps and words, the state of their tables, templates, scenarios from a seed."""
