"""WebShop's reward: how well the bought product fits the goal in type, attributes, options and price.

Differences from the original's web_agent_site/engine/goal.py: the words of a title's type are its words without stop
words, where spaCy picked nouns (half a gigabyte for one feature); colours are compared as they are, not by base colour.
The fuzzy ratio is that of thefuzz 0.22, reimplemented here.
"""

import re
from functools import lru_cache

from tasks.core.worlds.webshop.catalogue import PATH_SEPARATOR, GoalTask, Product

FUZZY = 85
"""Texts with a higher token set ratio count as equal."""
_WORD = re.compile(r"[a-z0-9]+")
_NO_WORD = re.compile(r"[\W_]")
_DROPPED = dict.fromkeys(range(128, 256))
_STOP = frozenset(["a", "an", "and", "for", "in", "of", "on", "or", "the", "to", "with", "by", "from", "your", "at"])


def reward(bought: Product, wanted: Product, goal: GoalTask, chosen: dict[str, str]) -> float:
    """Return the reward in [0, 1]: type factor x (matching attributes + options + price) / (number of criteria)."""
    attributes = sum(_has(bought, attribute) for attribute in goal.attributes)
    options = sum(
        any(token_set_ratio(value, asked) > FUZZY for value in chosen.values()) for asked in goal.options.values()
    )
    fits = attributes + options + (bought.price <= goal.highest_price)
    return type_factor(bought, wanted) * fits / (len(goal.attributes) + len(goal.options) + 1)


def type_factor(bought: Product, wanted: Product) -> float:
    """Return 1, or less if query, categories and title indicate another kind of product: 0.5, 0.1 or 0."""
    asked = type_words(wanted.title)
    title = len(asked & type_words(bought.title)) / len(asked) if asked else 0.2
    if title == 0:
        return 0.0
    if title < 0.1:
        return 0.1
    same_query = bought.query == wanted.query
    same_place = len(_categories(bought) & _categories(wanted)) >= 2
    return 1.0 if same_query or same_place or title > 0.2 else 0.5


def type_words(title: str) -> frozenset[str]:
    """Return the words of a title without stop words."""
    return frozenset(_WORD.findall(title.lower())) - _STOP


@lru_cache(maxsize=65_536)
def token_set_ratio(first: str, second: str) -> int:
    """Return thefuzz's fuzz.token_set_ratio, 0 to 100: compare word sets with and without their common words.

    All characters except letters and digits separate words, but the upper half of Latin-1 is dropped.
    """
    left, right = (set(_NO_WORD.sub(" ", text.translate(_DROPPED)).lower().split()) for text in (first, second))
    if not left or not right:
        return 0
    shared = " ".join(sorted(left & right))
    if shared and (left <= right or right <= left):
        return 100
    a, b = (" ".join(filter(None, [shared, *sorted(words)])) for words in (left - right, right - left))
    pairs = [(a, b), *([(shared, a), (shared, b)] if shared else [])]
    return round(max(_ratio(x, y) for x, y in pairs))


def _ratio(first: str, second: str) -> float:
    """Return 200 x longest common subsequence / sum of both lengths."""
    row = [0] * (len(second) + 1)
    for letter in first:
        diagonal = 0
        for index, against in enumerate(second, start=1):
            above = row[index]
            row[index] = diagonal + 1 if letter == against else max(above, row[index - 1])
            diagonal = above
    return 200 * row[-1] / (len(first) + len(second))


def _has(product: Product, attribute: str) -> bool:
    if any(token_set_ratio(product_attribute, attribute) > FUZZY for product_attribute in product.attributes):
        return True
    texts = (product.title, " ".join(product.features), product.description)
    return any(attribute in text.lower() for text in texts)


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split(PATH_SEPARATOR)}
