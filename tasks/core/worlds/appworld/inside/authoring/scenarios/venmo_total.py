"""A question: how much money went to, or came from, one person this year."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 1
APPS = ("venmo",)
VARIANTS = ({"direction": "sent"}, {"direction": "received"})


def draw(rng: Random, world: World, person: Person, direction: str) -> Draw:
    year = 2023
    totals: dict[int, float] = {}
    for one in world.transactions:
        me, other = (one.sender, one.receiver) if direction == "sent" else (one.receiver, one.sender)
        if me == person.id and one.created_at.year == year:
            totals[other] = totals.get(other, 0.0) + one.amount
    other_id = rng.choice(sorted(totals))
    other_person = world.person(other_id)
    verb = "sent to" if direction == "sent" else "received from"
    return Draw(
        instruction=f"How much money have I {verb} {other_person.name} on Venmo since the start of {year}?",
        public={"direction": direction, "name": other_person.name, "since": f"{year}-01-01"},
        answer=round(totals[other_id], 2),
    )


def solution(apis: Any, venmo_token: str, direction: str, name: str, since: str) -> None:
    transactions = all_pages(
        apis.venmo.show_transactions, access_token=venmo_token, direction=direction, min_created_at=since
    )
    other = "receiver" if direction == "sent" else "sender"
    total = sum(one["amount"] for one in transactions if one[other]["name"] == name)
    apis.supervisor.complete_task(answer=round(total, 2))


def evaluate(test: Any, models: Any) -> None:
    with test("assert nothing but the answer changed."):
        test.case(models.changed_model_names(), "==", set())
