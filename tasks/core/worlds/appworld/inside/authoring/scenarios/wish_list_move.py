"""Move what costs little, or much, from the wish list to the cart."""

from random import Random
from typing import Any

from ..databases import save_rows
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 2
APPS = ("amazon",)
VARIANTS = ({"cheap": True}, {"cheap": False})


def draw(rng: Random, world: World, person: Person, cheap: bool) -> Draw:
    products = rng.sample(world.products, 6)
    prices = sorted(product.price for product in products)
    limit = int(prices[2]) + 1
    wished = [(product, rng.randrange(1, 3)) for product in products]
    moved = sorted([product.id, quantity] for product, quantity in wished if (product.price < limit) == cheap)

    def change(collection: Any) -> None:
        rows = [{"user_id": person.id, "product_id": one.id, "quantity": quantity} for one, quantity in wished]
        save_rows(collection.amazon.WishListEntry, rows)

    phrase = "less" if cheap else "more"
    return Draw(
        f"Move every product in my Amazon wish list that costs {phrase} than ${limit} to my cart, "
        "with the quantity it has in the wish list.",
        {"limit": limit, "cheap": cheap},
        {"moved": moved},
        change=change,
    )


def solution(apis: Any, amazon_token: str, limit: int, cheap: bool) -> None:
    for product in apis.amazon.show_wish_list(access_token=amazon_token):
        if (product["price"] < limit) == cheap:
            apis.amazon.move_product_from_wish_list_to_cart(
                access_token=amazon_token, product_id=product["product_id"], quantity=int(product["quantity"])
            )
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, private_data: Any, main_user: Any) -> None:
    moved = [list(one) for one in private_data.moved]
    with test("assert only cart and wish list changed."):
        test.case(models.changed_model_names(), "==", {"amazon.CartEntry", "amazon.WishListEntry"})
    added, updated, removed = models.changed_records("amazon.CartEntry")
    with test("assert exactly the right products came into the supervisor's cart."):
        test.case(sorted([one.product_id, one.quantity] for one in added), "==", moved)
        test.case({one.user.email for one in added}, "==", {main_user.email})
        test.case((len(updated), len(removed)), "==", (0, 0))
    added, updated, removed = models.changed_records("amazon.WishListEntry")
    with test("assert exactly those left the wish list."):
        test.case(sorted([one.product_id, one.quantity] for one in removed), "==", moved)
        test.case((len(added), len(updated)), "==", (0, 0))
