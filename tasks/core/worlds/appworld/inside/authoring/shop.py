"""Goods of an authored world's shop. Pure; no database."""

from dataclasses import dataclass
from random import Random

from .words import BRANDS, PRODUCTS, SHARES, Share, pool

SELLERS = ("Northwind Goods", "Harbor Supply", "Plain & Sturdy", "Lumen House")
_TYPES_PER_SHARE = 6


@dataclass(frozen=True)
class Product:
    """One product; `id` is its id in the database."""

    id: int
    share: Share
    name: str
    product_type: str
    seller_id: int
    price: float
    rating: float
    delivery_days: int


def make_products(rng: Random) -> tuple[Product, ...]:
    """Six types per share in five brands each; within a type all prices and all ratings differ."""
    made: list[Product] = []
    for share in SHARES:
        for product_type in rng.sample(pool(PRODUCTS, share), _TYPES_PER_SHARE):
            made += _of_type(rng, share, product_type, len(made))
    return tuple(made)


def _of_type(rng: Random, share: Share, product_type: str, before: int) -> list[Product]:
    prices, ratings = rng.sample(range(9, 99), len(BRANDS)), rng.sample(range(21, 50), len(BRANDS))
    return [
        Product(
            id=before + place,
            share=share,
            name=f"{brand} {product_type}",
            product_type=product_type,
            seller_id=rng.randrange(len(SELLERS)) + 1,
            price=price + 0.99,
            rating=rating / 10,
            delivery_days=rng.randrange(1, 10),
        )
        for place, (brand, price, rating) in enumerate(zip(BRANDS, prices, ratings, strict=True), start=1)
    ]
