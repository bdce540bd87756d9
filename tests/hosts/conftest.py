"""A network of hosts for a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.network import Network, NoNamespaces


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """Yield a bridge without hosts; skip the test where a machine lets nobody make them."""
    folder = tmp_path / "network"
    folder.mkdir()
    try:
        made = Network(folder)
    except NoNamespaces as error:
        pytest.skip(f"no hosts here: {error}")
    try:
        yield made
    finally:
        made.close()
