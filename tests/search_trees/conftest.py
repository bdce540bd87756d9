"""The world, policy and limits of the tests of rollouts."""

from tests.core.rollouts.conftest import chat, engine, game, settings, short_engine

__all__ = ["chat", "engine", "game", "settings", "short_engine"]
