"""Published runs: what a finished run is made of and from, in git, so that anybody can hold a run against it."""
