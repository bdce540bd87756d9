"""Simulated users: a model behind a server, and a script for tests."""
