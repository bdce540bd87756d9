"""Goods of an authored world's shop. Pure; no database."""

from dataclasses import dataclass
from random import Random

SELLERS = ("Northwind Goods", "Harbor Supply", "Plain & Sturdy", "Lumen House")
PRODUCT_TYPES = ("backpack", "desk lamp", "water bottle", "headphones", "notebook", "umbrella")
_BRANDS = ("Aster", "Bramble", "Corvid", "Dune", "Everly")


@dataclass(frozen=True)
class Product:
    """One product; `id` is its id in the database."""

    id: int
    name: str
    product_type: str
    seller_id: int
    price: float
    rating: float
    delivery_days: int


def make_products(rng: Random) -> tuple[Product, ...]:
    """Five brands of each type; within a type all prices and all ratings differ."""
    made: list[Product] = []
    for product_type in PRODUCT_TYPES:
        prices, ratings = rng.sample(range(9, 120), len(_BRANDS)), rng.sample(range(21, 50), len(_BRANDS))
        for brand, price, rating in zip(_BRANDS, prices, ratings, strict=True):
            made.append(
                Product(
                    id=len(made) + 1,
                    name=f"{brand} {product_type}",
                    product_type=product_type,
                    seller_id=rng.randrange(len(SELLERS)) + 1,
                    price=price + 0.99,
                    rating=rating / 10,
                    delivery_days=rng.randrange(1, 10),
                )
            )
    return tuple(made)
