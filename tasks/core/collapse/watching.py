"""Warnings of a run, from the metrics.json of its iterations: the one place that all who tell them ask."""

from tasks.core.collapse.rules import collapse_rules, new_warnings, warnings_of
from tasks.core.config.params import iteration_key, iteration_number
from tasks.core.records.documents import Metrics, read_document
from tasks.core.records.layout import Layout
from tasks.core.records.monitoring import CollapseWarning, WatchedStats, watched


def read_warnings(layout: Layout, key: str) -> list[CollapseWarning]:
    """The signs of a collapse in all iterations up to `key`, in their order.

    Raises ArtifactError when metrics.json of one of them is missing or damaged.
    """
    return warnings_of(read_history(layout, key), collapse_rules())


def read_new_warnings(layout: Layout, key: str) -> list[CollapseWarning]:
    """Those of iteration `key` alone. Raises ArtifactError."""
    return new_warnings(read_history(layout, key), collapse_rules())


def read_history(layout: Layout, key: str) -> list[WatchedStats]:
    """Figures of the iterations up to `key` that rules look at, the first one first. Raises ArtifactError."""
    keys = map(iteration_key, range(1, iteration_number(key) + 1))
    return [watched(read_document(layout.metrics(each), Metrics)) for each in keys]
