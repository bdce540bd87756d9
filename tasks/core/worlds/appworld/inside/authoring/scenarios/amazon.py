"""Templates of Amazon: no task of train has this app."""

from random import Random
from typing import Any

from ..databases import save_rows
from ..paging import all_pages
from ..people import Person
from ..shop import Product
from ..template import CannotDraw, Change, Draw, Rows, Scenario, phrased
from ..words import dollars
from ..world import World


def listed(rng: Random, world: World, person: Person, model: str) -> tuple[list[tuple[Product, int]], Change]:
    """Six products with quantities, and what puts them into the cart or on the wish list."""
    products = rng.sample([one for one in world.products if one.share == person.share], 6)
    entries = [(product, rng.randrange(1, 4)) for product in products]

    def change(collection: Any) -> None:
        rows = [{"user_id": person.id, "product_id": one.id, "quantity": quantity} for one, quantity in entries]
        save_rows(collection.amazon[model], rows)

    return entries, change


class ShopBest(Scenario):
    """Put the cheapest, or best rated, product of a type into the cart."""

    DIFFICULTY = 2
    APPS = ("amazon",)
    VARIANTS = ({"measure": "price", "largest": False}, {"measure": "rating", "largest": True})
    SHOWING = "challenge"

    @staticmethod
    def draw(rng: Random, world: World, person: Person, measure: str, largest: bool) -> Draw:
        kind = rng.choice(sorted({one.product_type for one in world.products if one.share == person.share}))
        products = [product for product in world.products if product.product_type == kind]
        best = (max if largest else min)(products, key=lambda product: float(getattr(product, measure)))
        quantity = rng.randrange(2, 6)
        phrase = "best rated" if largest else "cheapest"
        instruction = phrased(
            rng,
            f"Put {quantity} pieces of the {phrase} product of the type {kind} into my Amazon cart.",
            f"Add the {phrase} {kind} to my Amazon cart, {quantity} times.",
        )
        row = {"product_id": best.id, "quantity": quantity, "user.email": person.email}
        public = {"product_type": kind, "quantity": quantity, "measure": measure, "largest": largest}
        return Draw(instruction, public, expect={"amazon.CartEntry": Rows(added=[row])})

    @staticmethod
    def solution(apis: Any, amazon_token: str, product_type: str, quantity: int, measure: str, largest: bool) -> None:
        # I list the products.
        found = all_pages(apis.amazon.search_products, product_type=product_type)
        best = (max if largest else min)(found, key=lambda x: x[measure])
        print(best["name"])
        # I put it in.
        apis.amazon.add_product_to_cart(access_token=amazon_token, product_id=best["product_id"], quantity=quantity)
        # All is done.
        apis.supervisor.complete_task()


class WishListMove(Scenario):
    """Move what costs little, or much, from the wish list to the cart."""

    DIFFICULTY = 2
    APPS = ("amazon",)
    VARIANTS = ({"cheap": True}, {"cheap": False})
    SHOWING = "challenge"

    @staticmethod
    def draw(rng: Random, world: World, person: Person, cheap: bool) -> Draw:
        entries, change = listed(rng, world, person, "WishListEntry")
        limit = dollars(rng, 20, 90, person.share)
        moved = [
            {"product_id": one.id, "quantity": quantity} for one, quantity in entries if (one.price < limit) == cheap
        ]
        if not moved:
            raise CannotDraw
        phrase = "less" if cheap else "more"
        instruction = phrased(
            rng,
            f"Move every product on my Amazon wish list that costs {phrase} than ${limit} to my cart, with the "
            "quantity it has there.",
            f"From my Amazon wish list, move what costs {phrase} than ${limit} to the cart, in the same quantities.",
        )
        expect = {"amazon.CartEntry": Rows(added=moved), "amazon.WishListEntry": Rows(removed=moved)}
        return Draw(instruction, {"limit": limit, "cheap": cheap}, expect=expect, change=change)

    @staticmethod
    def solution(apis: Any, amazon_token: str, limit: int, cheap: bool) -> None:
        # I look at the wish list.
        found = apis.amazon.show_wish_list(access_token=amazon_token)
        print(len(found))
        # I move the right ones.
        for x in found:
            if x["price"] < limit if cheap else x["price"] > limit:
                apis.amazon.move_product_from_wish_list_to_cart(
                    access_token=amazon_token, product_id=x["product_id"], quantity=int(x["quantity"])
                )
        # All is done.
        apis.supervisor.complete_task()


class WishListCount(Scenario):
    """A question: how many products of the wish list cost less, or more, than an amount."""

    DIFFICULTY = 1
    APPS = ("amazon",)
    VARIANTS = ({"cheap": True}, {"cheap": False})
    SHOWING = "challenge"

    @staticmethod
    def draw(rng: Random, world: World, person: Person, cheap: bool) -> Draw:
        entries, change = listed(rng, world, person, "WishListEntry")
        limit = dollars(rng, 20, 90, person.share)
        count = sum((one.price < limit) == cheap for one, _ in entries)
        phrase = "less" if cheap else "more"
        instruction = phrased(
            rng,
            f"How many products on my Amazon wish list cost {phrase} than ${limit}?",
            f"Count the products of my Amazon wish list that cost {phrase} than ${limit}.",
        )
        return Draw(instruction, {"limit": limit, "cheap": cheap}, count, change=change)

    @staticmethod
    def solution(apis: Any, amazon_token: str, limit: int, cheap: bool) -> None:
        # I look at the wish list.
        found = apis.amazon.show_wish_list(access_token=amazon_token)
        print(len(found))
        # I count those that fit.
        total = len([x for x in found if (x["price"] < limit if cheap else x["price"] > limit)])
        print(total)
        # That is the answer.
        apis.supervisor.complete_task(answer=total)


class CartDrop(Scenario):
    """Take what is dear out of the cart."""

    DIFFICULTY = 2
    APPS = ("amazon",)
    SHOWING = "hidden"

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        entries, change = listed(rng, world, person, "CartEntry")
        limit = dollars(rng, 20, 90, person.share)
        gone = [{"product_id": one.id} for one, _ in entries if one.price > limit]
        if not gone:
            raise CannotDraw
        instruction = f"Delete every product from my Amazon cart of which one piece costs more than ${limit}."
        return Draw(instruction, {"limit": limit}, expect={"amazon.CartEntry": Rows(removed=gone)}, change=change)

    @staticmethod
    def solution(apis: Any, amazon_token: str, limit: int) -> None:
        # I look at the cart.
        found = apis.amazon.show_cart(access_token=amazon_token)["cart_items"]
        print(len(found))
        # I delete the right ones.
        for x in found:
            if apis.amazon.show_product(product_id=x["product_id"])["price"] > limit:
                apis.amazon.delete_product_from_cart(access_token=amazon_token, product_id=x["product_id"])
        # All is done.
        apis.supervisor.complete_task()
