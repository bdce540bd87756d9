"""An episode as it is played: the server of its API calls, the verdict, a REPL for code that we trust."""
