"""Products and goals, the original's files (items_shuffle*.json, items_ins_v2*.json, items_human_ins.json), and ours.

Our file is checked whole when opened, and its products are read on demand: as objects, the original's 1.18 million
products would take 3 GB.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.records.files import ArtifactError, load_json
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import GameTask

PATH_SEPARATOR = " \u203a "
"""Separates the parts of a product category."""
NO_PRICE = 100.0
"""Price of a product without a price in its row, as in the original."""
_NO_DIGIT = re.compile(r"[^\d.]")


class Product(BaseModel):
    """A product of the catalogue."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asin: str = Field(min_length=1, max_length=10)
    title: str = Field(min_length=1)
    description: str = ""
    features: tuple[str, ...] = ()
    prices: tuple[float, ...] = (NO_PRICE,)
    """One price, or both ends of a range, as pages show it."""
    price: float = NO_PRICE
    """The product's price; for a range, a value drawn once."""
    options: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By name, such as colour: the values, in lower case."""
    attributes: tuple[str, ...] = ()
    query: str = ""
    """The search that found the product when the catalogue was made; tells the type of product."""
    category: str = ""
    product_category: str = ""
    """A path of categories, separated by PATH_SEPARATOR."""

    @property
    def price_text(self) -> str:
        """The price as the pages show it."""
        return " to ".join(f"${price}" for price in self.prices)

    @property
    def searched_text(self) -> str:
        """The text that the search engine indexes: title, description, first feature and options."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, *self.features[:1], options]).lower()


class GoalTask(GameTask):
    """The product to buy. `attributes`, `options` and `highest_price` are the criteria of the reward."""

    instruction: str = Field(min_length=1)
    asin: str
    attributes: tuple[str, ...] = Field(min_length=1)
    options: dict[str, str] = Field(default_factory=dict)
    highest_price: float


def read_original(items: Path, attributes: Path, seed: int) -> list[Product]:
    """Read the products of the original's files. `seed` draws the prices of ranges.

    As in the original, leaves out rows whose asin is "nan", longer than ten characters or a duplicate; a row without a
    price costs $100, a row without options has none. Raises ArtifactError naming file, row and rule.

    Takes about three times the size of `items` in memory, because its text and JSON are both held while it is read. A
    row's JSON is released when its product is made.
    """
    known, rows = _load(attributes, dict), _load(items, list)
    products: dict[str, Product] = {}
    for number in range(len(rows)):
        row, rows[number] = rows[number], None
        try:
            asin = row["asin"]
            if asin != "nan" and len(asin) <= 10 and asin not in products:
                products[asin] = _product(row, known.get(asin, {}), seed)
        except ValidationError as error:
            raise ArtifactError(f"{items}: row {number}: {broken_rules(error, '')[0]}") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ArtifactError(f"{items}: row {number}: not a product as WebShop writes it ({error!r})") from None
    return list(products.values())


def read_human_goals(path: Path, products: Mapping[str, Product]) -> Iterator[dict[str, Any]]:
    """Yield fields of `GoalTask` from items_human_ins.json, without price.

    Leaves out goals without attributes, as the original does. Raises ArtifactError naming file, product and rule.
    """
    for asin, instructions in _load(path, dict).items():
        if asin not in products:
            continue
        if not isinstance(instructions, list):
            raise ArtifactError(f"{path}: {asin}: expected a list of instructions, found {instructions!r:.80}")
        for number, given in enumerate(instructions):
            if isinstance(given, dict) and given.get("instruction_attributes") == []:
                continue
            try:
                yield {"asin": asin, **_HumanGoal.model_validate(given).fields()}
            except ValidationError as error:
                raise ArtifactError(f"{path}: {asin}, instruction {number}: {broken_rules(error, '')[0]}") from None


class _HumanGoal(BaseModel):
    """The fields that are read of an instruction in items_human_ins.json."""

    instruction: str
    instruction_attributes: tuple[str, ...] = Field(min_length=1)
    instruction_options: dict[str, str] | list[str]
    """Some rows name their options, others only list the values."""

    def fields(self) -> dict[str, Any]:
        given = self.instruction_options
        options = given if isinstance(given, dict) else {str(number): value for number, value in enumerate(given)}
        return {
            "instruction": self.instruction.strip("."),
            "attributes": self.instruction_attributes,
            "options": options,
        }


def _load(path: Path, kind: type[Any]) -> Any:
    return load_json(path, kind, missing="WebShop's setup.sh downloads it", damaged="download it again")


def _product(row: dict[str, Any], known: dict[str, Any], seed: int) -> Product:
    features = row["small_description"] or ()
    prices = _prices(row.get("pricing") or "")
    price = Random(derive_seed(seed, "price", row["asin"])).uniform(prices[0], prices[-1])
    return Product(
        asin=row["asin"],
        title=row["name"],
        description=row["full_description"] or "",
        features=tuple(features if isinstance(features, list) else [features]),
        prices=tuple(prices),
        price=price,
        options={name.lower(): _values(given) for name, given in (row["customization_options"] or {}).items() if given},
        attributes=tuple(known.get("attributes", ())),
        query=row["query"].lower().strip(),
        category=row["category"],
        product_category=row["product_category"],
    )


def _values(given: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(value["value"].strip().replace("/", " | ").lower() for value in given)


def _prices(given: str) -> list[float]:
    """Parse prices as the original does: the digits and points after each dollar sign, at most two prices."""
    try:
        return [float(_NO_DIGIT.sub("", price)) for price in given.split("$")[1:]][:2] or [NO_PRICE]
    except ValueError:
        raise ValueError(f"pricing: {given!r} has a dollar sign without a number") from None


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
