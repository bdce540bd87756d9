"""A question: how many threads of the inbox are unread, or read."""

from random import Random
from typing import Any

from ..mail import send_mails
from ..paging import all_pages
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 1
APPS = ("gmail",)
VARIANTS = ({"read": False}, {"read": True})


def draw(rng: Random, world: World, person: Person, read: bool) -> Draw:
    senders = [world.person(number) for number in rng.choices(sorted(person.relationships), k=rng.randrange(6, 12))]
    opened = rng.randrange(1, len(senders))

    def change(collection: Any) -> None:
        send_mails(collection, [(sender, person) for sender in senders])
        for thread in collection.gmail.UserEmailThread.find_all(user_id=person.id)[:opened]:
            thread.read = True
            thread.save()

    return Draw(
        f"How many email threads in my Gmail inbox are {'read' if read else 'unread'}?",
        {"read": read},
        answer=opened if read else len(senders) - opened,
        change=change,
    )


def solution(apis: Any, gmail_token: str, read: bool) -> None:
    threads = all_pages(apis.gmail.show_inbox_threads, access_token=gmail_token, read=read)
    apis.supervisor.complete_task(answer=len(threads))


def evaluate(test: Any, models: Any) -> None:
    with test("assert nothing but the answer changed."):
        test.case(models.changed_model_names(), "==", set())
