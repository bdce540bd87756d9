"""WebShop: the original's files, its reward by hand, and a visit page by page."""

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.core.records.files import ArtifactError
from tasks.core.text_games.episode import answer_text
from tasks.core.text_games.settings import GameCounts
from tasks.core.worlds.webshop.authoring import draw_catalogue
from tasks.core.worlds.webshop.catalogue import GoalTask, Product, read_original
from tasks.core.worlds.webshop.kind import WebShopConfig
from tasks.core.worlds.webshop.shop import Shop, Shopping, reward, token_set_ratio, type_factor
from tasks.core.worlds.webshop.world import WebShopKind, open_webshop, write_webshop

HUMAN = {"instruction": "a shirt.", "instruction_attributes": ["cotton"], "instruction_options": ["navy | red"]}
PATH = "Clothing \u203a Men \u203a Shirts"


def item(asin: str, name: str, **changes: Any) -> dict[str, Any]:
    """A row as items_shuffle.json has it."""
    row = {
        "asin": asin,
        "name": name,
        "full_description": "soft",
        "small_description": ["machine wash", "cotton"],
        "pricing": "$10.00$1,020.50",
        "customization_options": {"Color": [{"value": "Navy/Red ", "image": None}], "Size": None},
        "query": " Shirts ",
        "category": "fashion",
        "product_category": PATH,
        "images": ["x"],
    }
    return row | changes


@pytest.fixture
def original(tmp_path: Path) -> Path:
    names = [f"Shirt {number}" for number in range(12)]
    items = [item(f"B{number:09d}", name) for number, name in enumerate(names)]
    for row in items[9:]:
        row |= {"category": "grocery", "query": "tea"}
    (tmp_path / "items_shuffle_1000.json").write_text(json.dumps(items))
    (tmp_path / "items_ins_v2_1000.json").write_text(json.dumps({"B000000001": {"attributes": ["slim fit"]}}))
    (tmp_path / "items_human_ins.json").write_text(json.dumps({row["asin"]: [HUMAN] for row in items}))
    return tmp_path


def read(folder: Path, *rows: dict[str, Any]) -> list[Product]:
    (folder / "items_shuffle_1000.json").write_text(json.dumps(rows))
    return list(read_original(folder / "items_shuffle_1000.json", folder / "items_ins_v2_1000.json", seed=1))


def test_the_originals_rows_are_read_as_it_reads_them(original: Path) -> None:
    left_out = item("B000000001", "again"), item("nan", "none"), item("B0000000000", "too long")
    bare = item("B2", "B", pricing=None, customization_options=None, small_description="one")
    one, two = read(original, item("B000000001", "A"), *left_out, bare)
    assert (one.title, one.prices, one.query, one.attributes) == ("A", (10.0, 1020.5), "shirts", ("slim fit",))
    assert one.options == {"color": ("navy | red",)}
    assert 10 <= one.price <= 1020.5
    assert (two.prices, two.price, two.options, two.features) == ((100.0,), 100.0, {}, ("one",))


@pytest.mark.parametrize(
    ("pricing", "prices"),
    [("$.99", (0.99,)), ("$ 1,020.50", (1020.5,)), ("$1 to $2 or $3", (1.0, 2.0)), ("", (100.0,))],
)
def test_prices_are_read_as_the_original_reads_them(pricing: str, prices: tuple[float, ...], original: Path) -> None:
    (product,) = read(original, item("B1", "A", pricing=pricing))
    assert product.prices == prices


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[{", r"items_shuffle_1000\.json: not valid JSON"),
        ("{}", "expected a JSON list, found dict"),
        (json.dumps([item("B1", "")]), "row 0: title: "),
        (json.dumps([item("B1", "x"), {"asin": "B2"}]), "row 1: not a product .*small_description"),
        (json.dumps([3]), "row 0: not a product"),
        (json.dumps([item("B1", "x", pricing="$, ")]), r"row 0: .*pricing: '\$, ' has a dollar sign without a number"),
    ],
)
def test_a_broken_original_file_is_named(content: str, message: str, original: Path) -> None:
    (original / "items_shuffle_1000.json").write_text(content)
    with pytest.raises(ArtifactError, match=message):
        write_webshop(WebShopConfig(source="original", root=original), 1, original / "world")
    assert not (original / "world").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "B000000000: expected a list of instructions, found None"),
        ([3], "B000000000, instruction 0: Input should be "),
        ([{"instruction_attributes": ["soft"]}], "B000000000, instruction 0: instruction: Field required"),
        ([HUMAN | {"instruction_options": "red"}], "B000000000, instruction 0: instruction_options"),
        ([HUMAN | {"instruction_options": {"color": ["red"]}}], "B000000000, instruction 0: instruction_options"),
        ([HUMAN | {"instruction_attributes": None}], "B000000000, instruction 0: instruction_attributes"),
    ],
)
def test_a_broken_human_goal_is_named(given: Any, message: str, original: Path) -> None:
    (original / "items_human_ins.json").write_text(json.dumps({"B000000000": given}))
    with pytest.raises(ArtifactError, match=rf"items_human_ins\.json: {message}"):
        write_webshop(WebShopConfig(source="original", root=original), 1, original / "world")


def test_the_originals_goals_are_divided_into_whole_scenarios(original: Path) -> None:
    counts = GameCounts(train=3, dev=3, test_normal=3, test_challenge=3)
    config = WebShopConfig(source="original", root=original, counts=counts)
    write_webshop(config, 1, original / "world")
    world = open_webshop(config, "first", original / "world")
    assert [len(world.tasks(split)) for split in ("train", "dev", "test_normal", "test_challenge")] == [3, 3, 3, 3]
    task = world.tasks("test_challenge")[0]
    assert (task.instruction.startswith("a shirt"), task.difficulty) == (True, 2)
    episode = world.open(task.task_id, 0)
    for turn in world.demonstration(task.task_id):
        episode.step(turn)
    assert episode.evaluate().success


GOAL = GoalTask(
    task_id="a",
    scenario_id="a",
    difficulty=3,
    split="dev",
    instruction="a shirt",
    asin="B1",
    attributes=("slim fit", "cotton"),
    options={"color": "navy", "size": "large"},
    highest_price=40.0,
)
SHIRT = Product(
    asin="B1",
    title="Alder Cotton Shirt",
    attributes=("slim fit",),
    price=30.0,
    options={"color": ("navy", "teal"), "size": ("small", "large")},
    query="shirt",
    product_category=PATH,
)


@pytest.mark.parametrize(
    ("changes", "chosen", "expected"),
    [
        ({}, {"color": "navy", "size": "large"}, 1.0),
        ({}, {"color": "navy"}, 4 / 5),
        ({"price": 41.0}, {"color": "teal", "size": "small"}, 2 / 5),
        ({"attributes": ()}, {"color": "navy", "size": "large"}, 4 / 5),
        ({"title": "Cotton Dress", "query": "dress"}, {"color": "navy", "size": "large"}, 1.0),
        ({"title": "Lamp", "query": "lamp", "product_category": "x"}, {}, 0.0),
    ],
)
def test_the_reward_is_the_share_that_fits(changes: dict[str, Any], chosen: dict[str, str], expected: float) -> None:
    assert reward(SHIRT.model_copy(update=changes), SHIRT, GOAL, chosen) == pytest.approx(expected)


def test_another_kind_of_thing_counts_half_or_less() -> None:
    wanted = SHIRT.model_copy(update={"title": "one two three four five six seven eight nine ten eleven"})
    bought = wanted.model_copy(update={"title": "one two x", "query": "lamp", "product_category": "x"})
    assert type_factor(bought, wanted) == 0.5
    assert type_factor(bought.model_copy(update={"title": "one x"}), wanted) == 0.1


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [
        ("fuzzy was a bear", "fuzzy fuzzy was a bear", 100),
        ("essential oil", "essential oils", 96),
        ("tea", "lamp", 29),
        ("", "x", 0),
        ("long-lasting", "Long lasting", 100),
        ("x-large", "large", 100),
        ("caf\xe9 cups", "caf cups", 100),
        ("?!", "?!", 0),
    ],
)
def test_the_fuzzy_ratio_is_that_of_thefuzz(one: str, other: str, ratio: int) -> None:
    assert token_set_ratio(one, other) == ratio


def test_a_visit_goes_from_page_to_page() -> None:
    others = [SHIRT.model_copy(update={"asin": f"C{number}", "title": f"Shirt {number}"}) for number in range(14)]
    visit = Shopping(Shop.of([SHIRT, *others]), GOAL)
    assert visit.state.startswith("WebShop [SEP] Instruction: [SEP] a shirt [SEP] Search\n")
    assert visit.understood("click[buy now]") is None
    visit.play(visit.understood("Search[Cotton Shirt]") or "")
    assert "Page 1 (Total results: 15) [SEP] Next >" in visit.state
    visit.play("click[next >]")
    assert "Page 2 (Total results: 15) [SEP] < Prev [SEP] Next >" in visit.state
    visit.play("click[< prev]")
    visit.play(visit.understood("click[B1]") or "")
    visit.play("click[features]")
    assert "click[back to search], click[< prev]." in visit.state
    visit.play("click[< prev]")
    visit.play("click[navy]")
    assert "color [SEP] [navy] [SEP] teal" in visit.state
    assert visit.play("click[buy now]") == pytest.approx(4 / 5)
    assert (visit.over, visit.solved) == (True, False)
    assert visit.understood("search[tea]") is None


@pytest.mark.parametrize("clicks", [[], ["b1"], ["b1", "navy"], ["b1", "features"]])
def test_a_search_starts_anew_from_every_page(clicks: list[str]) -> None:
    visit = Shopping(Shop.of([SHIRT]), GOAL)
    for action in ("search[shirt]", *(f"click[{name}]" for name in clicks)):
        visit.play(action)
    visit.play(visit.understood("Search[Cotton Shirt]") or "")
    assert "Page 1 (Total results: 1)" in visit.state
    visit.play("click[b1]")
    assert "color [SEP] navy [SEP] teal" in visit.state


def test_a_value_of_two_options_is_chosen_of_the_last() -> None:
    both = SHIRT.model_copy(update={"options": {"color": ("navy", "one"), "style": ("navy", "two")}})
    visit = Shopping(Shop.of([both]), GOAL)
    for action in ("search[shirt]", "click[b1]", "click[navy]"):
        visit.play(action)
    assert "color [SEP] navy [SEP] one [SEP] style [SEP] [navy] [SEP] two" in visit.state
    assert visit.state.count("click[navy]") == 1
    kind = WebShopKind(WebShopConfig(), Shop.of([both]))
    once = GOAL.model_copy(update={"options": {"color": "navy", "style": "navy"}})
    assert list(kind.solution(once))[2:] == ["click[navy]", "click[buy now]"]
    never = GOAL.model_copy(update={"options": {"color": "navy", "style": "two"}})
    with pytest.raises(ValueError, match="two of navy, two are values of one option"):
        kind.solution(never)


def test_strict_rewards_pay_for_the_whole_alone(tmp_path: Path) -> None:
    config = WebShopConfig(reward="strict", products=600)
    write_webshop(config, 1, tmp_path / "world")
    world = open_webshop(config, "first", tmp_path / "world")
    task = world.tasks("train")[6]
    turns = world.demonstration(task.task_id)
    for played, paid in ((turns, 1.0), ([*turns[:2], turns[-1]], 0.0)):
        episode = world.open(task.task_id, 0)
        assert [episode.step(turn) for turn in played][-1].reward == paid
    assert world.open(task.task_id, 0).step(answer_text(["click[buy now]"], "x")).failed


def test_a_goal_without_its_product_is_named(tmp_path: Path) -> None:
    config = WebShopConfig(products=600)
    write_webshop(config, 1, tmp_path / "world")
    catalogue = tmp_path / "world" / "catalogue.jsonl"
    lines = catalogue.read_text().splitlines(keepends=True)
    catalogue.write_text("".join(lines[300:]))
    with pytest.raises(ArtifactError, match=r"asks for B\w+, which catalogue\.jsonl does not have"):
        open_webshop(config, "first", tmp_path / "world")
    catalogue.write_text("".join(lines)[:-30])
    with pytest.raises(ArtifactError, match=r"catalogue\.jsonl: line 600: "):
        open_webshop(config, "first", tmp_path / "world")


@pytest.mark.parametrize("products", [1350, 1400])
def test_every_product_has_an_asin_of_its_own(products: int) -> None:
    drawn = draw_catalogue(WebShopConfig(products=products), 0)
    assert len({product.asin for product in drawn}) == products
    assert {len(product.asin) for product in drawn} == ({5} if products == 1350 else {10})
