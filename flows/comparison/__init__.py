"""Studies: methods times training seeds, each a DVC experiment in a working tree of its own, compared in one table."""
