"""How WebShop is demonstrated: search for what is asked, take the product if it is shown, choose its options, buy."""

from collections.abc import Iterator, Sequence
from random import Random

from tasks.core.config.text_games import WebShopConfig
from tasks.core.seeding import derive_seed
from tasks.core.worlds.webshop.authoring import KINDS, MAKERS, SYLLABLES, Kind, draw_catalogue, draw_goal
from tasks.core.worlds.webshop.catalogue import GoalTask
from tasks.core.worlds.webshop.search import SearchEngine
from tasks.core.worlds.webshop.shop import BACK, BUY, DETAILS, NEXT, OFFER, PREVIOUS, SEPARATOR, Shop
from tasks.core.worlds.webshop.world import WebShopKind

_DETAILS = SEPARATOR.join(["Rating: N.A.", "Description", "Features", "Reviews", "Buy Now"])
_CLICKS = "], click[".join([f"click[{BACK}", PREVIOUS, *DETAILS, BUY])
_PAGES = (
    *("WebShop [SEP] Instruction: [SEP] Find me ", "Instruction: [SEP] Find me ", " by ", ", and price lower than "),
    *(f".00 dollars [SEP] Search{OFFER}search[<content>].", ".00 dollars [SEP] Back to Search [SEP] ", "< Prev [SEP] "),
    *("Page 1 (Total results: 50) [SEP] Next > [SEP] ", "Page ", " (Total results: ", ") [SEP] ", "Next > [SEP] "),
    *(SEPARATOR, " [SEP] $", " to $", " [SEP] Price: $", f"{SEPARATOR}{_DETAILS}{OFFER}{_CLICKS}", OFFER, " that is "),
    *(f"click[{BACK}], click[", "search[", "click[", "], click[", NEXT, BUY, PREVIOUS, BACK, *DETAILS),
    "Thank you for shopping with us!",
)


def _vocabulary() -> list[str]:
    """Words of the pages; asins in syllables, numbers in pairs of digits."""
    syllables = [spelt for syllable in SYLLABLES for spelt in (syllable, syllable.lower())]
    numbers = [f"{number:02d}" for number in range(100)]
    return [*_PAGES, *MAKERS, *numbers, *syllables, *(word for kind in KINDS for word in _kind_words(kind))]


def _kind_words(kind: Kind) -> list[str]:
    names = [kind.name, *kind.attributes]
    return [
        *names,
        *(name.title() for name in names),
        *(word for name, values in kind.options for word in (name, *values)),
    ]


class WebShopTeacher:
    """See `tasks.core.worlds.text_games.demonstrations.Teacher`. The catalogue is another one than the world's."""

    vocabulary: Sequence[str] = _vocabulary()

    def __init__(self) -> None:
        self.turns = WebShopConfig()
        self._products = draw_catalogue(self.turns, derive_seed(self.turns.products, "demonstrations"))
        self._by_asin = {product.asin: product for product in self._products}
        engine = SearchEngine([product.searched_text for product in self._products])
        self.kind = WebShopKind(self.turns, Shop(self._by_asin, tuple(self._by_asin), engine))

    def task(self, random: Random) -> GoalTask:
        return draw_goal(random, "train", 0, random.choice(self._products), difficulty=random.randint(1, 3))

    def advice(self, task: GoalTask, state: str) -> Sequence[str]:
        offered = self.actions(task, state)
        wanted = [f"click[{name}]" for name in (task.asin.lower(), *_unchosen(task, state), BUY)]
        helps = [action for action in wanted if action in offered]
        shown = [action for action in offered if action[len("click[") : -1].upper() in self._by_asin]
        return (helps or shown or offered)[:1]

    def actions(self, task: GoalTask, state: str) -> Sequence[str]:
        """Actions that the page offers; on the first page, the search."""
        wanted = self._by_asin[task.asin]
        search = " ".join([wanted.query, wanted.title.split()[0], *task.attributes])
        offered = state.partition(OFFER)[2].removesuffix(".")
        return [f"search[{search}]"] if offered.startswith("search[") else offered.split(", ")

    def names(self, task: GoalTask) -> Sequence[str]:
        return ()


def _unchosen(task: GoalTask, state: str) -> Iterator[str]:
    """Option values that are asked for and not chosen yet: chosen ones stand in brackets among the page's parts."""
    parts = state.partition("\n")[0].split(SEPARATOR)
    return (value for value in task.options.values() if f"[{value}]" not in parts)
