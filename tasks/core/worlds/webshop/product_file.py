"""The file of a world's catalogue: checked whole when opened; products are read on demand.

The original's 1.18 million products would take 3 GB as objects.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.records.files import ArtifactError
from tasks.core.worlds.webshop.catalogue import Product

KEPT = 16_384
"""Number of most recently read products kept in memory."""


class ProductFile(Mapping[str, Product]):
    """The products of a JSON Lines file, by asin, in the file's order. Thread-safe; keeps no file open."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise ArtifactError(f"{path}: missing; run `dvc repro prepare_world`")
        self._path, self._places = path, dict[str, int]()
        self._read = lru_cache(KEPT)(self._read_at)

    def texts(self) -> Iterator[str]:
        """Yield each product's text for a search engine, and index the products.

        Raises ArtifactError naming file and line.
        """
        offset = 0
        with self._path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    product = Product.model_validate_json(line)
                except ValidationError as error:
                    rule = broken_rules(error, "line")[0]
                    raise ArtifactError(f"{self._path}: line {number}: {rule}; run `dvc repro`") from None
                self._places[product.asin] = offset
                offset += len(line)
                yield product.searched_text

    def __getitem__(self, asin: str) -> Product:
        return self._read(self._places[asin])

    def __contains__(self, asin: object) -> bool:
        return asin in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _read_at(self, offset: int) -> Product:
        with self._path.open("rb") as stream:
            stream.seek(offset)
            return Product.model_validate_json(stream.readline())
