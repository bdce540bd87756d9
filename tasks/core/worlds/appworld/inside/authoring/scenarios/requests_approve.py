"""Approve the pending payment requests of some people, and deny or leave those of the others."""

from random import Random
from typing import Any

from ..databases import save_rows
from ..paging import all_pages
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 3
APPS = ("phone", "venmo")
VARIANTS = (
    {"relationship": "roommate", "rest": "leave"},
    {"relationship": "roommate", "rest": "deny"},
    {"relationship": "coworker", "rest": "leave"},
    {"relationship": "coworker", "rest": "deny"},
)
_PURPOSES = ("Rent", "Internet", "Snacks", "Cleaning", "Tools", "Tickets")


def draw(rng: Random, world: World, person: Person, relationship: str, rest: str) -> Draw:
    inside = person.related(relationship)
    outside = [other for other in sorted(person.relationships) if other not in inside]
    senders = [*inside, rng.choice(inside), *rng.sample(outside, 3)]
    rng.shuffle(senders)
    requests = [(sender, float(rng.randrange(5, 40)), rng.choice(_PURPOSES)) for sender in senders]

    def change(collection: Any) -> None:
        rows = [
            {"sender_id": sender, "receiver_id": person.id, "amount": amount, "description": purpose}
            for sender, amount, purpose in requests
        ]
        save_rows(collection.venmo.PaymentRequest, rows, quiet=True)

    tail = " and deny all others" if rest == "deny" else ""
    return Draw(
        f"Approve all pending Venmo payment requests from my {relationship}s{tail}.",
        {"relationship": relationship, "rest": rest},
        {
            "approved": sorted(
                [world.person(sender).email, amount] for sender, amount, _ in requests if sender in inside
            ),
            "denied": sorted(
                [world.person(sender).email, amount]
                for sender, amount, _ in requests
                if sender not in inside and rest == "deny"
            ),
        },
        change=change,
    )


def solution(apis: Any, phone_token: str, venmo_token: str, relationship: str, rest: str) -> None:
    contacts = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
    emails = {contact["email"] for contact in contacts}
    # Read all pages first: approving moves requests out of the list.
    requests = all_pages(apis.venmo.show_received_payment_requests, access_token=venmo_token, status="pending")
    for request in requests:
        request_id = request["payment_request_id"]
        if request["sender"]["email"] in emails:
            apis.venmo.approve_payment_request(access_token=venmo_token, payment_request_id=request_id)
        elif rest == "deny":
            apis.venmo.deny_payment_request(access_token=venmo_token, payment_request_id=request_id)
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only requests, payments and what follows from them changed."):
        test.case(
            models.changed_model_names(),
            "==",
            {"venmo.PaymentRequest", "venmo.Transaction", "venmo.Notification", "venmo.User"},
        )
    added, updated, removed = models.changed_records("venmo.PaymentRequest")
    with test("assert notifications were only added, one per decided request to its sender."):
        noted, altered, deleted = models.changed_records("venmo.Notification")
        test.case((len(altered), len(deleted)), "==", (0, 0))
        test.case(sorted(one.user_id for one in noted), "==", sorted(one.sender_id for one in updated))
    with test("assert of users nothing changed but the balances of those concerned."):
        joined, users, left = models.changed_records("venmo.User")
        test.case((len(joined), len(left)), "==", (0, 0))
        concerned = {main_user.email, *(email for email, _ in private_data.approved)}
        test.case({one.email for one in users}, "==", concerned)
        fields = [models.changed_field_names("venmo.User", one.id) for one in users]
        test.case(set().union(*fields), "==", {"venmo_balance"})
    with test("assert no request was added or removed."):
        test.case((len(added), len(removed)), "==", (0, 0))
    with test("assert exactly the right requests were approved."):
        approved = [[one.sender.email, one.amount] for one in updated if one.approved_at is not None]
        test.case(sorted(approved), "==", [list(one) for one in private_data.approved])
    with test("assert exactly the right requests were denied."):
        denied = [[one.sender.email, one.amount] for one in updated if one.denied_at is not None]
        test.case(sorted(denied), "==", [list(one) for one in private_data.denied])
    payments, changed, lost = models.changed_records("venmo.Transaction")
    with test("assert the supervisor paid each approved request once, and nothing else."):
        paid = [[one.receiver.email, one.amount] for one in payments if one.sender.email == main_user.email]
        test.case(sorted(paid), "==", [list(one) for one in private_data.approved])
        test.case((len(payments), len(changed), len(lost)), "==", (len(paid), 0, 0))
