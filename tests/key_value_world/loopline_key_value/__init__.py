"""A world for loopline: a key-value store whose entries are to be brought to a goal."""
