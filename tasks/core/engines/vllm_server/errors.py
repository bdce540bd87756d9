"""Errors for server faults, whose messages tell a user everything needed."""

from tasks.core.transient import Transient


class EngineUnavailable(RuntimeError):  # noqa: N818 - reads as what it is
    """A vLLM server cannot be started, or the address is not a vLLM server."""


class ServerLost(EngineUnavailable, Transient):
    """A vLLM server cannot be reached, or died too often; it may be back after a while."""


class WrongPolicy(ValueError):  # noqa: N818
    """A server does not sample from the policy that it was given."""


class ServerGone(Exception):  # noqa: N818
    """A server did not answer, or reported that its engine is dead; it must be restarted. Never leaves the engine."""
