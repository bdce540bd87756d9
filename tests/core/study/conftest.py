"""A small finished run."""

from tests.report.conftest import finished_run, reported_run, tokenizer, world

__all__ = ["finished_run", "reported_run", "tokenizer", "world"]
