"""The project before its first collection."""

from tests.core.rollouts.conftest import chat, context, long_model, params, tokenizer

__all__ = ["chat", "context", "long_model", "params", "tokenizer"]
