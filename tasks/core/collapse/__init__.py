"""Warnings before training collapses, and what is done about them."""
