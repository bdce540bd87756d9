"""A network of hosts for a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.network import Network, NoNamespaces


@contextmanager
def made_network(folder: Path) -> Iterator[Network]:
    """Make a bridge without hosts for the block; skip the test where a machine lets nobody make them."""
    try:
        made = Network(folder)
    except NoNamespaces as error:
        pytest.skip(f"no hosts here: {error}")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """Yield a bridge without hosts."""
    folder = tmp_path / "network"
    folder.mkdir()
    with made_network(folder) as made:
        yield made
