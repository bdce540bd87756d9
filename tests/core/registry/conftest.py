"""A finished run, and stores of its own."""

from tests.record_lineage.conftest import another_run, empty_store, finished, layout, own_stores, params, pipeline

__all__ = ["another_run", "empty_store", "finished", "layout", "own_stores", "params", "pipeline"]
