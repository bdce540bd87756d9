"""Put the cheapest, or best rated, product of a type into the cart."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..shop import PRODUCT_TYPES
from ..template import Draw
from ..world import World

DIFFICULTY = 2
APPS = ("amazon",)
VARIANTS = ({"measure": "price", "largest": False}, {"measure": "rating", "largest": True})


def draw(rng: Random, world: World, person: Person, measure: str, largest: bool) -> Draw:
    product_type, quantity = rng.choice(PRODUCT_TYPES), rng.randrange(2, 5)
    products = [product for product in world.products if product.product_type == product_type]
    best = (max if largest else min)(products, key=lambda product: getattr(product, measure))
    phrase = "best rated" if largest else "cheapest"
    return Draw(
        f"Put {quantity} pieces of the {phrase} product of the type {product_type} into my Amazon cart.",
        {"product_type": product_type, "quantity": quantity, "measure": measure, "largest": largest},
        {"product_id": best.id},
    )


def solution(apis: Any, amazon_token: str, product_type: str, quantity: int, measure: str, largest: bool) -> None:
    products = all_pages(apis.amazon.search_products, product_type=product_type)
    products.sort(key=lambda product: product[measure], reverse=largest)
    apis.amazon.add_product_to_cart(access_token=amazon_token, product_id=products[0]["product_id"], quantity=quantity)
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, public_data: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only the cart changed."):
        test.case(models.changed_model_names(), "==", {"amazon.CartEntry"})
    added, updated, removed = models.changed_records("amazon.CartEntry")
    with test("assert one product was added to the supervisor's cart and nothing else changed in it."):
        test.case((len(added), len(updated), len(removed)), "==", (1, 0, 0))
        test.case(added[0].user.email, "==", main_user.email)
    with test("assert it is the right product in the right quantity."):
        test.case((added[0].product_id, added[0].quantity), "==", (private_data.product_id, public_data.quantity))
