"""The shop's pages as WebShop's text mode shows them, its search engine, and the game of buying there.

The search engine is BM25 over the catalogue, by bm25s. Unlike the original's Pyserini, whose analyser stems words
(Porter) and drops stop words, it matches words exactly as written.

The reward says how well the bought product fits the goal in type, attributes, options and price. Differences from the
original's web_agent_site/engine/goal.py: the words of a title's type are its words without stop words, where spaCy
picked nouns (half a gigabyte for one feature); colours are compared as they are, not by base colour. The fuzzy ratio is
that of thefuzz 0.22, reimplemented here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from tasks.core.worlds.webshop.catalogue import PATH_SEPARATOR, GoalTask, Product

K1, B = 0.9, 0.4
"""Parameters of Pyserini's LuceneSearcher, which the original uses."""
RESULTS = 50
LONGEST_QUERY = 300
"""Maximum characters of a query that are used."""
_WORD = re.compile(r"[a-z0-9]+")


class SearchEngine:
    """An index of texts. On equal scores the earlier text comes first. Thread-safe."""

    def __init__(self, texts: Iterable[str]) -> None:
        import bm25s

        words: dict[str, int] = {}
        ids = [[words.setdefault(word, len(words)) for word in _WORD.findall(text)] for text in texts]
        self._words, self._count = words, len(ids)
        self._index = bm25s.BM25(method="lucene", k1=K1, b=B)
        self._index.index((ids, words), show_progress=False)

    def search(self, query: str) -> list[int]:
        """Return the numbers of the RESULTS best texts; fewer if fewer share a word with the query."""
        ids = [self._words[word] for word in _WORD.findall(query[:LONGEST_QUERY].lower()) if word in self._words]
        if not ids:
            return []
        scores = self._index.get_scores_from_ids(ids)
        best = min(RESULTS, self._count)
        least = np.partition(scores, self._count - best)[self._count - best]
        numbers = np.flatnonzero(scores >= max(least, np.finfo(np.float32).tiny))
        return [int(number) for number in numbers[np.argsort(-scores[numbers], kind="stable")][:best]]


FUZZY = 85
"""Texts with a higher token set ratio count as equal."""
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


PER_PAGE = 10
SEPARATOR = " [SEP] "
BACK, PREVIOUS, NEXT, BUY = "back to search", "< prev", "next >", "buy now"
DETAILS = ("description", "features", "reviews")
OFFER = "\nYou must choose from these actions: "
LONGEST_ACTION = 400
"""Characters; a longer action is invalid."""


@dataclass(frozen=True)
class Shop:
    """The part of the game that all episodes share."""

    products: Mapping[str, Product]
    order: Sequence[str]
    """Asins in the order of the search engine's numbers."""
    engine: SearchEngine
    strict: bool = False

    @classmethod
    def of(cls, products: Sequence[Product]) -> "Shop":
        """Return a shop with graded rewards that sells these products; indexes their texts."""
        by_asin = {product.asin: product for product in products}
        return cls(by_asin, tuple(by_asin), SearchEngine([product.searched_text for product in products]))


def chosen_option(product: Product, value: str) -> str | None:
    """Return the option that a click on `value` chooses; None if no option has that value.

    If several options have it, the last one counts, because the original's `get_available_actions` keeps one button per
    value.
    """
    return next((option for option, values in reversed(product.options.items()) if value in values), None)


class Shopping:
    """One visit to the shop. Its place is the start, the results of a search, a product or one of its details."""

    def __init__(self, shop: Shop, goal: GoalTask) -> None:
        self._shop, self._goal = shop, goal
        self._place: Literal["start", "results", "item", "detail", "done"] = "start"
        self._results: list[str] = []
        self._page = 1
        self._product: Product | None = None
        self._chosen: dict[str, str] = {}
        self._detail = ""
        self._clickable: tuple[str, ...] = ()
        self.over = self.solved = False
        self._show()

    def understood(self, action: str) -> str | None:
        """Return the action in normal form: `search[words]`, or `click[name]` for a name on the page; None if invalid.

        Case is ignored. As in the original's `step`, a search is accepted on every page, even without a search bar.
        """
        text = action.strip().lower()
        name, _, rest = text.partition("[")
        if len(action) > LONGEST_ACTION or not rest.endswith("]"):
            return None
        argument = rest[:-1].strip()
        if name == "search" and argument and not self.over:
            return f"search[{argument}]"
        return f"click[{argument}]" if name == "click" and argument in self._clickable else None

    def play(self, action: str) -> float:
        """Search or click. Buying pays the reward and ends the visit."""
        argument = action.partition("[")[2][:-1]
        if action.startswith("search["):
            numbers = self._shop.engine.search(argument)
            self._results, self._page, self._place = [self._shop.order[number] for number in numbers], 1, "results"
        elif argument == BUY:
            return self._buy()
        else:
            self._click(argument)
        self._show()
        return 0.0

    def _click(self, name: str) -> None:
        product = self._product
        if name == BACK:
            self._place = "start"
        elif name == NEXT:
            self._page += 1
        elif name == PREVIOUS and self._place == "results":
            self._page -= 1
        elif name == PREVIOUS:
            self._place = "results" if self._place == "item" else "item"
        elif self._place == "results":
            self._product, self._chosen, self._place = self._shop.products[name.upper()], {}, "item"
        elif name in DETAILS:
            self._place, self._detail = "detail", name
        elif product is not None:
            option = chosen_option(product, name)
            assert option is not None, "only values of options are left"
            self._chosen = {**self._chosen, option: name}

    def _buy(self) -> float:
        assert self._product is not None, "only a product's page offers it"
        goal, wanted = self._goal, self._shop.products[self._goal.asin]
        earned = reward(self._product, wanted, goal, self._chosen)
        self._place, self.over, self.solved = "done", True, earned == 1.0
        self._clickable = ()
        self.state = "Thank you for shopping with us!"
        return float(self.solved) if self._shop.strict else earned

    def _show(self) -> None:
        """Set the text of the page and what can be clicked on it."""
        pages = {
            "start": self._start_page,
            "results": self._results_page,
            "item": self._item_page,
            "detail": self._detail_page,
        }
        parts, names = pages[self._place]()
        self._clickable = tuple(names)
        offered = ["search[<content>]"] if self._place == "start" else [f"click[{name}]" for name in names]
        self.state = f"{SEPARATOR.join(parts)}{OFFER}{', '.join(offered)}."

    def _head(self) -> list[str]:
        return ["Instruction:", self._goal.instruction]

    def _start_page(self) -> tuple[list[str], list[str]]:
        return ["WebShop", *self._head(), "Search"], []

    def _results_page(self) -> tuple[list[str], list[str]]:
        shown = self._results[(self._page - 1) * PER_PAGE : self._page * PER_PAGE]
        moves = [PREVIOUS] * (self._page > 1) + [NEXT] * bool(shown)
        parts = [*self._head(), "Back to Search", f"Page {self._page} (Total results: {len(self._results)})"]
        parts += [move.title() for move in moves]
        for asin in shown:
            product = self._shop.products[asin]
            parts += [asin, product.title, product.price_text]
        return parts, [BACK, *moves, *(asin.lower() for asin in shown)]

    def _item_page(self) -> tuple[list[str], list[str]]:
        product = self._product
        assert product is not None
        parts = [*self._head(), "Back to Search", "< Prev"]
        for option, offered in product.options.items():
            parts += [option, *(f"[{value}]" if self._chosen.get(option) == value else value for value in offered)]
        parts += [product.title, f"Price: {product.price_text}", "Rating: N.A."]
        values = dict.fromkeys(value for given in product.options.values() for value in given)
        return [*parts, "Description", "Features", "Reviews", "Buy Now"], [BACK, PREVIOUS, *DETAILS, BUY, *values]

    def _detail_page(self) -> tuple[list[str], list[str]]:
        product = self._product
        assert product is not None
        shown = {"description": [product.description], "features": list(product.features), "reviews": []}
        return [*self._head(), "Back to Search", "< Prev", *shown[self._detail]], [BACK, PREVIOUS]
