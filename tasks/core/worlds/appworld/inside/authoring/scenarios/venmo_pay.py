"""Pay a person who is named by first name and relationship; the phone's contacts know the address."""

from random import Random
from typing import Any

from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 2
APPS = ("phone", "venmo")
VARIANTS = ({"private": False}, {"private": True})
_PURPOSES = ("Lunch", "Bus fare", "Book club", "Parking", "Flowers")


def draw(rng: Random, world: World, person: Person, private: bool) -> Draw:
    relationship = rng.choice(("roommate", "coworker", "friend"))
    receiver = world.person(rng.choice(person.related(relationship)))
    amount, purpose = rng.randrange(5, 80), rng.choice(_PURPOSES)
    manner = "privately " if private else ""
    return Draw(
        instruction=f"Pay my {relationship} {receiver.first_name} ${amount} {manner}on Venmo "
        f'with the description "{purpose}".',
        public={
            "relationship": relationship,
            "first_name": receiver.first_name,
            "amount": amount,
            "purpose": purpose,
            "private": private,
        },
        private={"receiver_email": receiver.email},
    )


def solution(
    apis: Any,
    phone_token: str,
    venmo_token: str,
    relationship: str,
    first_name: str,
    amount: float,
    purpose: str,
    private: bool,
) -> None:
    contacts = apis.phone.search_contacts(access_token=phone_token, query=first_name, relationship=relationship)
    contact = next(one for one in contacts if one["first_name"] == first_name)
    apis.venmo.create_transaction(
        access_token=venmo_token,
        receiver_email=contact["email"],
        amount=amount,
        description=purpose,
        private=private,
    )
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, public_data: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only the payment and what follows from it changed."):
        test.case(models.changed_model_names(), "==", {"venmo.Transaction", "venmo.Notification", "venmo.User"})
    added, updated, removed = models.changed_records("venmo.Transaction")
    with test("assert one notification was added, to the receiver, and none updated or removed."):
        noted, altered, deleted = models.changed_records("venmo.Notification")
        test.case((len(altered), len(deleted)), "==", (0, 0))
        test.case([one.user.email for one in noted], "==", [private_data.receiver_email])
    with test("assert of users nothing changed but the balances of these two."):
        joined, users, left = models.changed_records("venmo.User")
        test.case((len(joined), len(left)), "==", (0, 0))
        test.case({one.email for one in users}, "==", {main_user.email, private_data.receiver_email})
        fields = [models.changed_field_names("venmo.User", one.id) for one in users]
        test.case(set().union(*fields), "==", {"venmo_balance"})
    with test("assert one payment was made and no other one changed."):
        test.case((len(added), len(updated), len(removed)), "==", (1, 0, 0))
    with test("assert the supervisor paid the right person."):
        test.case(
            (added[0].sender.email, added[0].receiver.email), "==", (main_user.email, private_data.receiver_email)
        )
    with test("assert amount, description and privacy are as asked."):
        test.case(
            (added[0].amount, added[0].description, added[0].private),
            "==",
            (public_data.amount, public_data.purpose, public_data.private),
        )
