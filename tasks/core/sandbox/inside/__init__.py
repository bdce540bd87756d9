"""Code that runs inside the sandbox. Agents' code can reach all of it: standard library only."""
