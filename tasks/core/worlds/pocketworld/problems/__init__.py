"""Problems: apps and words, the state of their tables, templates, and the playable task that a spec describes."""
