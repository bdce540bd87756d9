"""Errors that may pass."""


class Transient(Exception):  # noqa: N818 - an adjective, mixed into errors that have names of their own
    """Mixed into an error of which params and artifacts are innocent: trying again later may help."""
