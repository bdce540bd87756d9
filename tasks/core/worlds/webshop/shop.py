"""The shop's pages as WebShop's text mode shows them, its search engine, and the game of buying there.

The search engine is BM25 over the catalogue, by bm25s. Unlike the original's Pyserini, whose analyser stems words
(Porter) and drops stop words, it matches words exactly as written.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.core.worlds.webshop.catalogue import GoalTask, Product
from tasks.core.worlds.webshop.reward import reward

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
