"""Addresses of servers and databases, made safe for messages."""

import re


def without_credentials(text: str) -> str:
    """Remove user name and password from every address in `text`."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)
