"""Faults of servers, as errors whose message is all that a user needs."""

from tasks.core.transient import Transient


class EngineUnavailable(RuntimeError):  # noqa: N818 - reads as what it is
    """A vLLM server can't be started, or is none."""


class ServerLost(EngineUnavailable, Transient):
    """A vLLM server can't be reached, or died too often: it may be there again in a while."""


class WrongPolicy(ValueError):  # noqa: N818
    """A server does not sample from the policy that it was given."""


class ServerGone(Exception):  # noqa: N818
    """A server did not answer, or said that its engine is dead: it must be started again. Never leaves the engine."""
