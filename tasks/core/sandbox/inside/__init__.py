"""Code that runs inside the sandbox. Agents' code can reach all of it; it uses only the standard library."""
