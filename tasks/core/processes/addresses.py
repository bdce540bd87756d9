"""Addresses of servers and databases as messages show them."""

import re


def without_credentials(text: str) -> str:
    """`text` with the user information taken out of every address in it."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)
