"""One process for all stages of a `dvc repro`; README.md says what for, and how to do without."""
