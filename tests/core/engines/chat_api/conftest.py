"""The server of tests/core/chat_servers."""

from tests.core.chat_servers.conftest import chat, configured, serve, server, surroundings

__all__ = ["chat", "configured", "serve", "server", "surroundings"]
