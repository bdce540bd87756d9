"""Sokoban, with gym-sokoban's rules and rewards.

An implementation of our own: gym-sokoban is no longer maintained, and textarena's Sokoban plays 92 steps/s.
"""
