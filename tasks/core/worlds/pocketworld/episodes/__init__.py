"""Playing an episode: the server for its API calls, the verdict, and a REPL for code that we trust."""
