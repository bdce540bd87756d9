"""Star, or archive, all threads in the inbox from one person."""

from random import Random
from typing import Any

from ..mail import send_mails
from ..paging import all_pages
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 2
APPS = ("gmail", "phone")
VARIANTS = ({"action": "star"}, {"action": "archive"})


def draw(rng: Random, world: World, person: Person, action: str) -> Draw:
    relationship = rng.choice(("roommate", "coworker"))
    sender = world.person(rng.choice(person.related(relationship)))
    others = rng.sample([other for other in sorted(person.relationships) if other != sender.id], 3)
    senders = [sender.id, sender.id, sender.id, *others]
    rng.shuffle(senders)

    def change(collection: Any) -> None:
        send_mails(collection, [(one, person) for one in (world.person(number) for number in senders)])

    return Draw(
        f"{action.capitalize()} all email threads in my Gmail inbox from my {relationship} {sender.first_name}.",
        {"action": action, "relationship": relationship, "first_name": sender.first_name},
        {"field": "starred" if action == "star" else "archived", "sender_email": sender.email, "count": 3},
        change=change,
    )


def solution(apis: Any, gmail_token: str, phone_token: str, action: str, relationship: str, first_name: str) -> None:
    contacts = apis.phone.search_contacts(access_token=phone_token, query=first_name, relationship=relationship)
    email = next(contact["email"] for contact in contacts if contact["first_name"] == first_name)
    threads = all_pages(apis.gmail.show_inbox_threads, access_token=gmail_token, from_email=email)
    mark = apis.gmail.mark_thread_starred if action == "star" else apis.gmail.mark_thread_archived
    for thread in threads:
        mark(access_token=gmail_token, email_thread_id=thread["email_thread_id"])
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only email threads changed."):
        test.case(models.changed_model_names(), "==", {"gmail.UserEmailThread"})
    added, updated, removed = models.changed_records("gmail.UserEmailThread")
    with test("assert no thread was added or removed."):
        test.case((len(added), len(removed)), "==", (0, 0))
    with test("assert exactly the supervisor's threads from that person changed."):
        found = [(one.user.email, list(one.sender_email_addresses)) for one in updated]
        test.case(found, "==", [(main_user.email, [private_data.sender_email])] * private_data["count"])
    with test("assert they are marked as asked and otherwise unchanged."):
        test.case({getattr(one, private_data.field) for one in updated}, "==", {True})
        fields = [models.changed_field_names("gmail.UserEmailThread", one.id, ignore=["updated_at"]) for one in updated]
        test.case(all(changed == {private_data.field} for changed in fields), "==", True)
