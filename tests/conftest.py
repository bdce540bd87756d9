"""Lanes: tests that start servers, clusters or environments of their own run by their marker alone (`-m ray`)."""

import pytest

LANES = frozenset({"vllm", "appworld", "services", "ray", "faults"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raises UsageError for a test of two lanes: .ci/run would run it twice."""
    for item in items:
        if len(lanes := sorted(LANES & {mark.name for mark in item.iter_markers()})) > 1:
            raise pytest.UsageError(f"{item.nodeid} is in the lanes {' and '.join(lanes)}; one marker is enough")
