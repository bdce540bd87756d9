"""Sokoban, with gym-sokoban's rules and rewards. That package is dead, textarena's plays 92 steps/s: this is ours."""
