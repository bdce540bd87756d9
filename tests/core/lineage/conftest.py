"""A finished run, and its own stores."""

from tests.record_lineage.conftest import empty_store, finished, layout, own_stores, params, pipeline

__all__ = ["empty_store", "finished", "layout", "own_stores", "params", "pipeline"]
