"""Authoring a root in the official layout: people and their data, API docs, tasks with ground truth and oracle."""
