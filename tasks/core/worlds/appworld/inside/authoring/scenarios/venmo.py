"""Templates of Venmo alone: payments made, liked and counted."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import CannotDraw, Draw, Rows, Scenario, phrased
from ..words import dollars, numbers
from ..world import Transaction, World


def payments(world: World, person: Person, direction: str) -> list[Transaction]:
    """Payments that the person sent, or received."""
    return [one for one in world.transactions if person.id == (one.sender if direction == "sent" else one.receiver)]


class VenmoTotal(Scenario):
    """A question: how much money went to, or came from, one person this year."""

    DIFFICULTY = 1
    APPS = ("venmo",)
    VARIANTS = ({"direction": "sent"}, {"direction": "received"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, direction: str) -> Draw:
        totals: dict[int, float] = {}
        for one in payments(world, person, direction):
            other = one.receiver if direction == "sent" else one.sender
            if one.created_at.year == 2023:
                totals[other] = totals.get(other, 0.0) + one.amount
        if not totals:
            raise CannotDraw
        other = rng.choice(sorted(totals))
        name = world.person(other).name
        verb = "sent to" if direction == "sent" else "received from"
        instruction = phrased(
            rng,
            f"How much money have I {verb} {name} on Venmo since the start of 2023?",
            f"What is the total of the Venmo payments that I have {verb} {name} in 2023?",
        )
        role = "receiver" if direction == "sent" else "sender"
        public = {"direction": direction, "role": role, "name": name, "since": "2023-01-01"}
        return Draw(instruction, public, round(totals[other], 2))

    @staticmethod
    def solution(apis: Any, venmo_token: str, direction: str, role: str, name: str, since: str) -> None:
        # I list the payments.
        found = all_pages(
            apis.venmo.show_transactions, access_token=venmo_token, direction=direction, min_created_at=since
        )
        print(len(found))
        # I add them up.
        total = round(sum(x["amount"] for x in found if x[role]["name"] == name), 2)
        print(total)
        # That is the answer.
        apis.supervisor.complete_task(answer=total)


class VenmoExtreme(Scenario):
    """A question: with whom, or for what, was the largest or smallest payment since the start of a month."""

    DIFFICULTY = 1
    APPS = ("venmo",)
    VARIANTS = tuple(
        {"direction": direction, "asked": asked, "largest": largest}
        for direction in ("sent", "received")
        for asked in ("person", "description")
        for largest in (True, False)
    )

    @staticmethod
    def draw(rng: Random, world: World, person: Person, direction: str, asked: str, largest: bool) -> Draw:
        month, day = numbers(rng, range(1, 4), range(1, 29), person.share)
        since = f"2023-{month:02d}-{day:02d}"
        found = [one for one in payments(world, person, direction) if f"{one.created_at:%Y-%m-%d}" >= since]
        amounts = [one.amount for one in found]
        if len(set(amounts)) < max(2, len(amounts)):
            raise CannotDraw
        best = (max if largest else min)(found, key=lambda one: one.amount)
        other = world.person(best.receiver if direction == "sent" else best.sender).name
        size = "largest" if largest else "smallest"
        what = "the description" if asked == "description" else "the other person's full name"
        instruction = phrased(
            rng,
            f"What is {what} of the {size} Venmo payment that I {direction} since {since}?",
            f"Of my Venmo payments {direction} since {since}, find the {size}: what is {what}?",
        )
        role = "receiver" if direction == "sent" else "sender"
        public = {"direction": direction, "since": since, "largest": largest, "asked": asked, "role": role}
        return Draw(instruction, public, best.description if asked == "description" else other)

    @staticmethod
    def solution(apis: Any, venmo_token: str, direction: str, since: str, largest: bool, asked: str, role: str) -> None:
        # I list the payments.
        found = all_pages(
            apis.venmo.show_transactions, access_token=venmo_token, direction=direction, min_created_at=since
        )
        print(len(found))
        # I look for the right one.
        best = (max if largest else min)(found, key=lambda x: x["amount"])
        answer = best["description"] if asked == "description" else best[role]["name"]
        print(answer)
        # That is the answer.
        apis.supervisor.complete_task(answer=answer)


class VenmoCount(Scenario):
    """A question: how many payments of more than an amount."""

    DIFFICULTY = 1
    APPS = ("venmo",)
    VARIANTS = ({"direction": "sent"}, {"direction": "received"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, direction: str) -> Draw:
        limit = dollars(rng, 10, 80, person.share)
        count = sum(one.amount > limit for one in payments(world, person, direction))
        instruction = phrased(
            rng,
            f"How many Venmo payments of more than ${limit} have I {direction}?",
            f"Count the Venmo payments above ${limit} that I have {direction}.",
        )
        return Draw(instruction, {"direction": direction, "limit": limit}, count)

    @staticmethod
    def solution(apis: Any, venmo_token: str, direction: str, limit: int) -> None:
        # I list the payments.
        found = all_pages(apis.venmo.show_transactions, access_token=venmo_token, direction=direction)
        print(len(found))
        # I count those that fit.
        total = len([x for x in found if x["amount"] > limit])
        print(total)
        # That is the answer.
        apis.supervisor.complete_task(answer=total)


class VenmoLike(Scenario):
    """Like all payments that went to, or came from, one person."""

    DIFFICULTY = 2
    APPS = ("venmo",)
    VARIANTS = ({"direction": "sent"}, {"direction": "received"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, direction: str) -> Draw:
        role = "receiver" if direction == "sent" else "sender"
        found = payments(world, person, direction)
        if not found:
            raise CannotDraw
        other = world.person(getattr(rng.choice(found), role))
        liked = [one for one in found if getattr(one, role) == other.id]
        word = "sent to" if direction == "sent" else "received from"
        instruction = phrased(
            rng,
            f"Like all Venmo payments that I have {word} {other.name}.",
            f"On Venmo, give a like to every payment {word} {other.name}.",
        )
        rows = [{"amount": one.amount, "description": one.description, "like_count": 1} for one in liked]
        likes = [{"user.email": person.email, "transaction.amount": one.amount} for one in liked]
        expect = {
            "venmo.TransactionLike": Rows(added=likes),
            "venmo.Transaction": Rows(updated=rows, fields=["like_count"]),
        }
        return Draw(instruction, {"direction": direction, "role": role, "name": other.name}, expect=expect)

    @staticmethod
    def solution(apis: Any, venmo_token: str, direction: str, role: str, name: str) -> None:
        # I list the payments.
        found = all_pages(apis.venmo.show_transactions, access_token=venmo_token, direction=direction)
        print(len(found))
        # I like the right ones.
        for x in found:
            if x[role]["name"] == name:
                apis.venmo.like_transaction(access_token=venmo_token, transaction_id=x["transaction_id"])
        # All is done.
        apis.supervisor.complete_task()
