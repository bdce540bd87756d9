"""Demonstrations for WebShop: search for the request, take the first result, choose its options, buy.

The play depends only on text that an agent sees, so that a policy can learn it. Better searches and a better choice
among the results are left to reinforcement learning.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

from tasks.core.policies.architecture import TinyQwen2
from tasks.core.policies.supervised import SupervisedSettings
from tasks.core.seeding import derive_seed
from tasks.core.text_games.demonstrations import GameRecipe, Teacher
from tasks.core.worlds.webshop.authoring import ASKING, KINDS, MAKERS, NAMES, Kind, draw_catalogue, draw_goal
from tasks.core.worlds.webshop.catalogue import GoalTask
from tasks.core.worlds.webshop.kind import WebShopConfig
from tasks.core.worlds.webshop.shop import BACK, BUY, DETAILS, NEXT, OFFER, PREVIOUS, SEPARATOR, Shop, Shopping
from tasks.core.worlds.webshop.world import WebShopKind

SHOPS = 20
_ASINS = frozenset(f"click[{name.lower()}]" for name in NAMES)
_DETAILS = SEPARATOR.join(["Rating: N.A.", "Description", "Features", "Reviews", "Buy Now"])
_CLICKS = "], click[".join([f"click[{BACK}", PREVIOUS, *DETAILS, BUY])
_PAGES = (
    *("WebShop [SEP] Instruction: [SEP] Find me ", "Instruction: [SEP] Find me ", " by ", ", and price lower than "),
    *(f".00 dollars [SEP] Search{OFFER}search[<content>].", ".00 dollars [SEP] Back to Search [SEP] ", "< Prev [SEP] "),
    *("Page 1 (Total results: 50) [SEP] Next > [SEP] ", "Page ", " (Total results: ", ") [SEP] ", "Next > [SEP] "),
    *(SEPARATOR, " [SEP] $", " to $", " [SEP] Price: $", f"{SEPARATOR}{_DETAILS}{OFFER}{_CLICKS}", OFFER, " that is "),
    *(f"click[{BACK}], click[", "search[", "click[", "], click[", ": ", NEXT, BUY, PREVIOUS, BACK, *DETAILS),
    "Thank you for shopping with us!",
)


def _vocabulary() -> list[str]:
    """Return the words of the pages, asins, and numbers in pairs of digits."""
    asins = [spelt for name in NAMES for spelt in (name, name.lower())]
    numbers = [f"{number:02d}" for number in range(100)]
    return [*_PAGES, *MAKERS, *numbers, *asins, *(word for kind in KINDS for word in _kind_words(kind))]


def _kind_words(kind: Kind) -> list[str]:
    names = [kind.name, *kind.attributes]
    return [
        *names,
        *(name.title() for name in names),
        *(word for name, values in kind.options for word in (name, *values)),
    ]


class _Goal(GoalTask):
    shop: int
    """Number of the teacher's shop that sells it."""


class _Shops(WebShopKind):
    """Many shops: with a single shop a policy would learn its asins by heart instead of reading them."""

    def __init__(self, config: WebShopConfig) -> None:
        super().__init__(config, _shop(config, 0))

    def start(self, task: GoalTask, seed: int) -> Shopping:
        assert isinstance(task, _Goal)
        return Shopping(_shop(self._config, task.shop), task)


class WebShopTeacher(Teacher):
    """Its catalogues differ from the world's."""

    vocabulary = _vocabulary()

    def __init__(self) -> None:
        self.turns = WebShopConfig()
        self.kind = _Shops(self.turns)

    def task(self, random: Random) -> GoalTask:
        number = random.randrange(SHOPS)
        shop = _shop(self.turns, number)
        product = shop.products[random.choice(shop.order)]
        return _Goal(**dict(draw_goal(random, "train", 0, product, random.randint(1, 3))), shop=number)

    def advice(self, task: GoalTask, state: str) -> Sequence[str]:
        offered = self.actions(task, state)
        wanted = [f"click[{name}]" for name in (*_unchosen(task, state), BUY)]
        helps = [action for action in wanted if action in offered]
        shown = [action for action in offered if action in _ASINS]
        return (shown or helps or offered)[:1]

    def actions(self, task: GoalTask, state: str) -> Sequence[str]:
        """Return the actions that the page offers; on the first page, the search."""
        offered = state.partition(OFFER)[2].removesuffix(".")
        return [f"search[{_asked(task)}]"] if offered.startswith("search[") else offered.split(", ")

    def names(self, task: GoalTask) -> Sequence[str]:
        return ()


@cache
def _shop(config: WebShopConfig, number: int) -> Shop:
    return Shop.of(draw_catalogue(config, derive_seed(config.products, "demonstrations", number)))


def _asked(task: GoalTask) -> str:
    """Return the instruction's words for kind, maker and attributes, verbatim."""
    beginning, last = task.instruction.removeprefix(ASKING), task.attributes[-1]
    return beginning[: beginning.index(last) + len(last)]


def _unchosen(task: GoalTask, state: str) -> Iterator[str]:
    """Return the requested option values not chosen yet: chosen values are in brackets among the page's parts."""
    parts = state.partition("\n")[0].split(SEPARATOR)
    return (value for value in task.options.values() if f"[{value}]" not in parts)


RECIPE = GameRecipe(
    teacher=WebShopTeacher,
    sizes=TinyQwen2(context_length=4096),
    supervised=SupervisedSettings(tokens_per_forward=2048),
    perfect_demonstrations=6_000,
    perfect_steps=1_000,
    imperfect_demonstrations=600,
    imperfect_steps=30,
)
