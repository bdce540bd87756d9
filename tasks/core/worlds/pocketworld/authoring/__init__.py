"""Making the tasks: apps and words, the state of their tables, templates, and scenarios drawn from a seed."""
