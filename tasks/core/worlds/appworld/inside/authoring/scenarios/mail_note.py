"""Mail the content of a note to a person."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 3
APPS = ("simple_note", "phone", "gmail")
VARIANTS = ({"relationship": "sibling"}, {"relationship": "roommate"}, {"relationship": "coworker"})


def draw(rng: Random, world: World, person: Person, relationship: str) -> Draw:
    title, content = rng.choice(world.notes[person.id])
    receivers = [world.person(other) for other in person.related(relationship)]
    return Draw(
        f'Send each {relationship} of mine a separate email with the content of my Simple Note "{title}" as the body '
        "and its title as the subject.",
        {"title": title, "relationship": relationship},
        {"content": content, "emails": sorted(receiver.email for receiver in receivers)},
    )


def solution(
    apis: Any, simple_note_token: str, phone_token: str, gmail_token: str, title: str, relationship: str
) -> None:
    notes = all_pages(apis.simple_note.search_notes, access_token=simple_note_token, query=title)
    note_id = next(note["note_id"] for note in notes if note["title"] == title)
    note = apis.simple_note.show_note(access_token=simple_note_token, note_id=note_id)
    contacts = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
    for contact in contacts:
        apis.gmail.send_email(
            access_token=gmail_token, email_addresses=[contact["email"]], subject=title, body=note["content"]
        )
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, public_data: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only emails and their threads changed."):
        test.case(
            models.changed_model_names(), "==", {"gmail.Email", "gmail.GlobalEmailThread", "gmail.UserEmailThread"}
        )
    added, updated, removed = models.changed_records("gmail.Email")
    with test("assert no email was updated or removed."):
        test.case((len(updated), len(removed)), "==", (0, 0))
    with test("assert each of them got one email of their own."):
        users = {user.id: user.email for user in models.end.gmail.User.all()}
        receivers = sorted([users[number] for number in one.recipient_ids] for one in added)
        test.case(receivers, "==", [[email] for email in private_data.emails])
    with test("assert sender, subject and body are as asked."):
        found = {(one.sender.email, one.subject, one.body) for one in added}
        test.case(found, "==", {(main_user.email, public_data.title, private_data.content)})
