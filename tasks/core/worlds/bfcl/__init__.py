"""The multi-turn tasks of the Berkeley Function Calling Leaderboard, by the package `bfcl-eval`."""
