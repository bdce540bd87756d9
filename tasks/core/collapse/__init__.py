"""Warnings before training collapses, and the reactions to them."""
