"""Request the shares of a bill that a note lists, each from the right person."""

from random import Random
from typing import Any

from ..databases import save_rows
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 3
APPS = ("simple_note", "phone", "venmo")
VARIANTS = ({"private": False}, {"private": True})
_OCCASIONS = ("Dinner on Friday", "Cabin weekend", "Concert night", "Museum trip", "Boat rental")


def draw(rng: Random, world: World, person: Person, private: bool) -> Draw:
    occasion = rng.choice(_OCCASIONS)
    others = [world.person(other) for other in rng.sample(sorted(person.relationships), 4)]
    shares = [(other, float(rng.randrange(8, 60))) for other in others]
    paid = rng.randrange(len(shares))  # one of them has paid already
    lines = [
        f"{other.first_name}: ${amount:.0f}" + (" (paid)" if place == paid else "")
        for place, (other, amount) in enumerate(shares)
    ]

    def change(collection: Any) -> None:
        note = {"user_id": person.id, "title": occasion, "content": "\n".join(lines), "pinned": False}
        save_rows(collection.simple_note.Note, [note])

    manner = "privately " if private else ""
    return Draw(
        f'My Simple Note "{occasion}" lists who owes me how much. Request the money from everybody who has not '
        f'paid yet {manner}on Venmo, with the description "{occasion}".',
        {"occasion": occasion, "private": private},
        {"owed": sorted([other.email, amount] for place, (other, amount) in enumerate(shares) if place != paid)},
        change=change,
    )


def solution(
    apis: Any, simple_note_token: str, phone_token: str, venmo_token: str, occasion: str, private: bool
) -> None:
    notes = apis.simple_note.search_notes(access_token=simple_note_token, query=occasion)
    note_id = next(note["note_id"] for note in notes if note["title"] == occasion)
    content = apis.simple_note.show_note(access_token=simple_note_token, note_id=note_id)["content"]
    for line in content.splitlines():
        if line.endswith("(paid)"):
            continue
        name, amount = line.split(": $")
        contacts = apis.phone.search_contacts(access_token=phone_token, query=name)
        email = next(contact["email"] for contact in contacts if contact["first_name"] == name)
        apis.venmo.create_payment_request(
            access_token=venmo_token, user_email=email, amount=float(amount), description=occasion, private=private
        )
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, public_data: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only payment requests and notifications of them changed."):
        test.case(models.changed_model_names(), "==", {"venmo.PaymentRequest", "venmo.Notification"})
    added, updated, removed = models.changed_records("venmo.PaymentRequest")
    with test("assert notifications were only added, one per request to its receiver."):
        noted, altered, deleted = models.changed_records("venmo.Notification")
        test.case((len(altered), len(deleted)), "==", (0, 0))
        test.case(sorted(one.user_id for one in noted), "==", sorted(one.receiver_id for one in added))
    with test("assert no earlier request was updated or removed."):
        test.case((len(updated), len(removed)), "==", (0, 0))
    with test("assert everybody who still owes got one request of the right amount."):
        test.case(sorted([one.receiver.email, one.amount] for one in added), "==", [list(o) for o in private_data.owed])
    with test("assert the supervisor sent them with the description and privacy asked for."):
        found = {(one.sender.email, one.description, one.private) for one in added}
        test.case(found, "==", {(main_user.email, public_data.occasion, public_data.private)})
