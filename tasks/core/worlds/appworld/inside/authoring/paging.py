"""The one helper of the oracles: its source goes into the solutions that use it."""

from typing import Any


def all_pages(api: Any, **arguments: Any) -> list[Any]:
    found, page_index = [], 0
    while True:
        page = api(page_index=page_index, page_limit=20, **arguments)
        found.extend(page)
        if len(page) < 20:
            return found
        page_index += 1
