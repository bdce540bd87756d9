"""Our own catalogue and goals, for users who have not downloaded the original's."""

import string
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from tasks.core.config.splits import SPLITS, Split
from tasks.core.seeding import derive_seed
from tasks.core.text_games.task_files import task_names
from tasks.core.worlds.webshop.catalogue import PATH_SEPARATOR as PATH
from tasks.core.worlds.webshop.catalogue import GoalTask, Product
from tasks.core.worlds.webshop.kind import WebShopConfig

CHALLENGE_CATEGORY = "grocery"
"""Category of Test-C, of generated and original products: its kinds and attributes are those of no other category."""
COLOURS = ("black", "white", "navy", "olive", "coral", "silver", "teal", "burgundy", "mustard", "ivory")
SIZES = ("x-small", "small", "medium", "large", "x-large", "xx-large")
SYLLABLES = tuple(one + other for one in "BDFGHJKLMNPRSTVWXZ" for other in "AEIOU")
NAMES = tuple(f"B{one}{other}" for one in SYLLABLES[::3] for other in SYLLABLES[::2])
"""The asins of a catalogue that is small enough (1,350 products); larger catalogues append to them. A tiny policy has
each as one token, which it can copy; it does not copy what it has to spell."""
ASKING = "Find me "
"""The beginning of all instructions."""
PACKS = ("single", "pack of 2", "pack of 4", "pack of 12")


class Kind(NamedTuple):
    """A kind of product."""

    name: str
    category: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]


def _kinds(category: str, names: str, attributes: str, *options: tuple[str, tuple[str, ...]]) -> list[Kind]:
    return [Kind(name, category, tuple(attributes.split(", ")), options) for name in names.split(", ")]


KINDS = (
    *_kinds(
        "fashion",
        "running shoes, rain jacket, linen shirt, wool sweater, summer dress, hiking pants",
        "machine washable, slim fit, long sleeve, water resistant, quick drying, hand made, non slip, lightweight",
        ("color", COLOURS),
        ("size", SIZES),
    ),
    *_kinds(
        "electronics",
        "wireless headphones, phone charger, desk lamp, mechanical keyboard, travel speaker",
        "fast charging, noise cancelling, high definition, easy to install, long lasting battery, dust proof, foldable",
        ("color", COLOURS),
        ("length", ("3 feet", "6 feet", "10 feet")),
    ),
    *_kinds(
        "furniture",
        "dining chair, coffee table, bookshelf, area rug, bed frame",
        "solid wood, easy assembly, space saving, stain resistant, high density, mid century, steel frame",
        ("color", COLOURS),
        ("size", ("twin", "full", "queen", "king")),
    ),
    *_kinds(
        "beauty",
        "hair shampoo, body lotion, face cream, bar soap",
        "cruelty free, paraben free, tea tree, dry skin, natural ingredients, fragrance free, alcohol free",
        ("scent", ("lavender", "citrus", "rose", "mint", "unscented")),
        ("pack", PACKS),
    ),
    *_kinds(
        "grocery",
        "green tea, ground coffee, oat cookies, trail mix, olive oil",
        "gluten free, low sodium, non gmo, usda organic, sugar free, dairy free, high protein, shelf stable",
        ("flavor", ("original", "vanilla", "chocolate", "ginger", "lemon")),
        ("pack", PACKS),
    ),
)
MAKERS = (
    *("Alder", "Brisk", "Cobalt", "Dune", "Ember", "Fjord"),
    *("Grove", "Harbor", "Iris", "Juniper", "Kestrel", "Lumen"),
)
_ASKED: dict[Split, tuple[float, float]] = {"train": (0.0, 0.5), "dev": (0.5, 0.65), "test_normal": (0.65, 1.0)}
"""The part of the catalogue from which each split takes its products."""


def draw_catalogue(config: WebShopConfig, seed: int) -> list[Product]:
    """Draw `config.products` products, cycling through all kinds."""
    random = Random(derive_seed(seed, "webshop", "catalogue"))
    asins = _asins(random, config.products)
    return [_product(random, asin, KINDS[number % len(KINDS)]) for number, asin in enumerate(asins)]


def _asins(random: Random, count: int) -> list[str]:
    if count <= len(NAMES):
        return random.sample(NAMES, count)
    asins = dict[str, None]()
    while len(asins) < count:
        asins["".join([random.choice(NAMES), *random.choices(SYLLABLES, k=2), random.choice(string.digits)])] = None
    return list(asins)


def draw_goals(config: WebShopConfig, seed: int, products: Sequence[Product]) -> dict[Split, list[GoalTask]]:
    """Draw the goals of all splits, `config.counts` of them, each on a different product while there are enough."""
    splits: dict[Split, list[GoalTask]] = {}
    challenge = [product for product in products if product.category == CHALLENGE_CATEGORY]
    others = [product for product in products if product.category != CHALLENGE_CATEGORY]
    for split in SPLITS:
        low, high = _ASKED.get(split, (0.0, 1.0))
        asked = challenge if split == "test_challenge" else others[int(low * len(others)) : int(high * len(others))]
        random = Random(derive_seed(seed, "webshop", split))
        splits[split] = list(_goals(random, split, asked, getattr(config.counts, split)))
    return splits


def highest_price(random: Random, price: float) -> float:
    """Draw a price limit as the original does: the higher of two of the next four multiples of ten above the price."""
    tens = [10.0 * step for step in range(1, 100) if 10.0 * step > price][:4]
    return max(random.sample(tens, 2)) if len(tens) >= 2 else 1_000_000.0


def _goals(random: Random, split: Split, asked: Sequence[Product], count: int) -> Iterator[GoalTask]:
    by_kind: dict[str, list[Product]] = {}
    for product in asked:
        by_kind.setdefault(product.query, []).append(product)
    kinds = [kind for kind in sorted(by_kind) if len(by_kind[kind]) >= 3]
    for scenario in range(count // 3):
        difficulty = scenario % 3 + 1
        for number, product in enumerate(random.sample(by_kind[kinds[scenario % len(kinds)]], 3)):
            yield draw_goal(random, split, 3 * scenario + number, product, difficulty)


def draw_goal(random: Random, split: Split, index: int, product: Product, difficulty: int) -> GoalTask:
    """Draw the `index`-th goal of a split: to buy this product, or one like it."""
    attributes = tuple(random.sample(product.attributes, min(2, len(product.attributes))))
    names = random.sample(sorted(product.options), min(difficulty - 1, len(product.options)))
    options = {name: random.choice(product.options[name]) for name in names}
    price = highest_price(random, product.price)
    wishes = "".join(f", {name}: {value}" for name, value in options.items())
    return GoalTask(
        **task_names(split, index),
        difficulty=difficulty,
        split=split,
        instruction=f"{ASKING}{product.query} by {product.title.split()[0]}, {' and '.join(attributes)}{wishes}, "
        f"and price lower than {price:.2f} dollars",
        asin=product.asin,
        attributes=attributes,
        options=options,
        highest_price=price,
    )


def _product(random: Random, asin: str, kind: Kind) -> Product:
    attributes = tuple(random.sample(kind.attributes, 3))
    low = round(random.uniform(5, 120), 2)
    prices = (low, round(low * random.uniform(1.1, 1.6), 2)) if random.random() < 0.3 else (low,)
    options = {name: tuple(random.sample(values, random.randint(2, len(values)))) for name, values in kind.options}
    return Product(
        asin=asin,
        title=f"{random.choice(MAKERS)} {attributes[0].title()} {kind.name.title()} {random.randint(100, 999)}",
        description=f"{kind.name} that is {attributes[1]}.",
        features=tuple(f"{attribute}: {kind.name}" for attribute in attributes),
        prices=prices,
        price=random.uniform(prices[0], prices[-1]),
        options=options,
        attributes=attributes,
        query=kind.name,
        category=kind.category,
        product_category=f"{kind.category}{PATH}{kind.name.split()[-1]}{PATH}{kind.name}",
    )
