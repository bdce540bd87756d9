"""Send one text message to everybody of a relationship."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 2
APPS = ("phone",)
VARIANTS = ({"relationship": "roommate"}, {"relationship": "coworker"}, {"relationship": "friend"})
_MESSAGES = (
    "I will be late today.",
    "Shall we meet on Sunday?",
    "My number stays the same.",
    "Thank you for the help!",
)


def draw(rng: Random, world: World, person: Person, relationship: str) -> Draw:
    message = rng.choice(_MESSAGES)
    numbers = sorted(world.person(other).phone_number for other in person.related(relationship))
    return Draw(
        f'Send the text message "{message}" to each of my {relationship}s.',
        {"message": message, "relationship": relationship},
        {"numbers": numbers},
    )


def solution(apis: Any, phone_token: str, message: str, relationship: str) -> None:
    contacts = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
    for contact in contacts:
        apis.phone.send_text_message(access_token=phone_token, phone_number=contact["phone_number"], message=message)
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, public_data: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only text messages changed."):
        test.case(models.changed_model_names(), "==", {"phone.GlobalTextMessage", "phone.UserTextMessage"})
    added, updated, removed = models.changed_records("phone.GlobalTextMessage")
    with test("assert no message was updated or removed."):
        test.case((len(updated), len(removed)), "==", (0, 0))
    with test("assert each of them got one message, and nobody else."):
        test.case(sorted(message.receiver.phone_number for message in added), "==", list(private_data.numbers))
    with test("assert the supervisor sent the text asked for."):
        test.case({message.message for message in added}, "==", {public_data.message})
        test.case({message.sender.phone_number for message in added}, "==", {main_user.phone_number})
