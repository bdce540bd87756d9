"""The base class of errors that may pass."""


class Transient(Exception):  # noqa: N818 - an adjective, mixed into errors that have names of their own
    """A mark of errors that params and artifacts did not cause: trying again later may help."""
