"""The world of the shop: its folder, and a visit for each goal."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.records.files import ArtifactError, replacing
from tasks.core.seeding import derive_seed
from tasks.core.text_games.episode import Briefing, GameRules
from tasks.core.text_games.task_files import read_tasks, task_names, write_task_files
from tasks.core.text_games.world import TextGameWorld
from tasks.core.worlds.webshop.authoring import CHALLENGE_CATEGORY, draw_catalogue, draw_goals, highest_price
from tasks.core.worlds.webshop.catalogue import GoalTask, Product, ProductFile, read_human_goals, read_original
from tasks.core.worlds.webshop.kind import WebShopConfig
from tasks.core.worlds.webshop.shop import BUY, NEXT, PER_PAGE, SearchEngine, Shop, Shopping, chosen_option

CATALOGUE = "catalogue.jsonl"


class WebShopKind:
    """A `tasks.core.text_games.world.GameKind`."""

    rules = GameRules("webshop", "bought what was asked for", 0.0, 1.0)

    def __init__(self, config: WebShopConfig, shop: Shop) -> None:
        self._config, self._shop = config, shop

    def briefing(self, task: GoalTask) -> Briefing:
        return Briefing(
            "You are browsing an online shop. Based on the instruction, buy a product that is close to its "
            "description. You need to search, read the results, pick a product, choose its options and buy. You should "
            "only choose actions from the list that every page ends with. Search for what it is, not for size, "
            "colour or price. An answer is like <answer>search[blanket with fleece throw]</answer> or "
            "<answer>click[buy now]</answer>."
        )

    def instruction(self, task: GoalTask) -> str:
        return task.instruction

    def start(self, task: GoalTask, seed: int) -> Shopping:
        return Shopping(self._shop, task)

    def solution(self, task: GoalTask) -> Sequence[str]:
        """Return the solution: search for the title, click the product and its options, buy.

        Raises ValueError if that takes too long, or if one requested value would replace another.
        """
        product, values = self._shop.products[task.asin], dict.fromkeys(task.options.values())
        if len({chosen_option(product, value) or value for value in values}) < len(values):
            raise ValueError(f"webshop: {task.task_id}: two of {', '.join(values)} are values of one option")
        title = product.title
        results = [self._shop.order[number] for number in self._shop.engine.search(title)]
        pages = results.index(task.asin) // PER_PAGE if task.asin in results else self._config.max_actions
        clicks = [*[NEXT] * pages, task.asin.lower(), *values, BUY]
        if len(clicks) + 1 > self._config.max_actions:
            raise ValueError(f"webshop: {task.task_id}: the product is not among the first results for its own title")
        return [f"search[{title}]", *(f"click[{name}]" for name in clicks)]


def write_webshop(config: WebShopConfig, seed: int, folder: Path) -> None:
    """Write catalogue and goals of all splits. Raises ArtifactError for the original's files, naming file and row."""
    if config.root is None:
        products = draw_catalogue(config, seed)
        goals = draw_goals(config, seed, products)
    else:
        products = read_original(_file(config.root, "items_shuffle"), _file(config.root, "items_ins_v2"), seed)
        goals = _original_goals(config, seed, products)
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_task_files(temporary, goals)
        with (temporary / CATALOGUE).open("w", encoding="utf-8") as stream:
            stream.writelines(product.model_dump_json() + "\n" for product in products)


def open_webshop(config: WebShopConfig, code_blocks: CodeBlocks, folder: Path) -> TextGameWorld[GoalTask]:
    """Open the world in `folder` and index its catalogue. Raises ArtifactError naming file, line and rule."""
    products = ProductFile(folder / CATALOGUE)
    engine = SearchEngine(products.texts())
    tasks = read_tasks(folder, GoalTask)
    for task in (task for part in tasks.values() for task in part):
        if task.asin not in products:
            raise ArtifactError(f"{folder}: task {task.task_id} asks for {task.asin}, which {CATALOGUE} does not have")
    shop = Shop(products, tuple(products), engine, strict=config.reward == "strict")
    return TextGameWorld(tasks, WebShopKind(config, shop), config)


def _file(root: Path, stem: str) -> Path:
    """Return the only file whose name begins with `stem`: the original has a small and a full version of each."""
    paths = sorted(root.glob(f"{stem}*.json"))
    if len(paths) != 1:
        raise ArtifactError(f"{root}: expected one {stem}*.json, found {[path.name for path in paths]}")
    return paths[0]


def _original_goals(config: WebShopConfig, seed: int, products: list[Product]) -> dict[Split, list[GoalTask]]:
    """Draw scenarios of three goals with the same query, shuffled; the held-out category is test_challenge."""
    assert config.root is not None
    known, random = {product.asin: product for product in products}, Random(derive_seed(seed, "webshop", "original"))
    by_query: dict[str, list[dict[str, object]]] = {}
    for goal in read_human_goals(_file(config.root, "items_human_ins"), known):
        by_query.setdefault(known[str(goal["asin"])].query, []).append(goal)
    groups = [goals[i : i + 3] for goals in by_query.values() for i in range(0, len(goals) - 2, 3)]
    random.shuffle(groups)
    splits: dict[Split, list[GoalTask]] = {"train": [], "dev": [], "test_normal": [], "test_challenge": []}
    for group in groups:
        held_out = known[str(group[0]["asin"])].category == CHALLENGE_CATEGORY
        wanting: list[Split] = ["test_challenge"] if held_out else ["test_normal", "dev", "train"]
        split = next((name for name in wanting if len(splits[name]) < getattr(config.counts, name)), None)
        if split is None:
            continue
        for goal in group:
            splits[split].append(_original_goal(goal, known, random, split, len(splits[split])))
    if empty := [name for name, goals in splits.items() if not goals]:
        raise ArtifactError(f"{config.root}: too few goals with attributes for {', '.join(empty)}")
    return splits


def _original_goal(
    goal: dict[str, object], known: dict[str, Product], random: Random, split: Split, index: int
) -> GoalTask:
    price = highest_price(random, known[str(goal["asin"])].price)
    limit = f", and price lower than {price:.2f} dollars" if price < 1_000_000 else ""
    options = goal["options"]
    assert isinstance(options, dict)
    fields = goal | {"instruction": f"{goal['instruction']}{limit}", "highest_price": price}
    return GoalTask.model_validate(
        {**task_names(split, index), "difficulty": min(3, len(options) + 1), "split": split, **fields}
    )
