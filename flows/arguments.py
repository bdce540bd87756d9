"""Types of the commands' arguments, for argparse: each says what it wants of a value that it refuses."""

from argparse import ArgumentTypeError
from collections.abc import Callable

LAST_PORT = 65_535


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """A type: whole numbers from `least` to `most`, both included."""
    wanted = f"a whole number from {least}" + (" on" if most is None else f" to {most}")

    def parsed(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            raise ArgumentTypeError(f"{text!r} is not {wanted}")
        return number

    return parsed


def share(text: str) -> float:
    """A type: numbers between 0 and 1, neither included."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise ArgumentTypeError(f"{text!r} is not a number between 0 and 1")
    return number
