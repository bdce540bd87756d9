"""Tool calls in an agent's text: how they are read, and how tools, calls and answers are shown."""
