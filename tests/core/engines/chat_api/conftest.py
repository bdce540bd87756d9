"""The server of tests/core/chat_servers."""

from tests.core.chat_servers.conftest import (
    chat,
    configured,
    key,
    own_folder,
    serve,
    server,
    short_backoff,
    short_silence,
)

__all__ = ["chat", "configured", "key", "own_folder", "serve", "server", "short_backoff", "short_silence"]
