"""Artifacts: their paths (`layout`), their schemas, and typed readers and writers that validate both ways."""
