"""The splits of a world's tasks. Standard library only, below everything that names a split."""

from typing import Literal, get_args

Split = Literal["train", "dev", "test_normal", "test_challenge"]
SPLITS: tuple[Split, ...] = get_args(Split)
TEST_SPLITS: tuple[Split, ...] = ("test_normal", "test_challenge")
"""Played by scoring only, when everything is chosen."""
MEASURED_SPLITS: tuple[Split, ...] = ("dev", *TEST_SPLITS)
"""Those on which policies are compared."""
