"""Templates of Gmail: no task of train has this app."""

from random import Random
from typing import Any

from ..mail import send_mails
from ..paging import all_pages
from ..people import Person
from ..template import Draw, Rows, Scenario, circle, phrased
from ..words import SUBJECTS, pool
from ..world import World


class MailUnread(Scenario):
    """A question: how many threads of a subject are unread, or read."""

    DIFFICULTY = 1
    APPS = ("gmail",)
    VARIANTS = ({"read": False}, {"read": True})
    SHOWING = "challenge"

    @staticmethod
    def draw(rng: Random, world: World, person: Person, read: bool) -> Draw:
        senders = [world.person(one) for one in rng.choices(sorted(person.relationships), k=rng.randrange(7, 12))]
        subject, other = rng.sample(pool(SUBJECTS, person.share), 2)
        mails = [(sender, person, subject if place % 3 else other) for place, sender in enumerate(senders)]
        opened = [rng.random() < 0.5 for _ in mails]

        def change(collection: Any) -> None:
            send_mails(collection, mails)
            threads = collection.gmail.UserEmailThread.find_all(user_id=person.id)
            for thread, is_open in zip(threads, opened, strict=True):
                thread.read = is_open
                thread.save()

        count = sum(mail[2] == subject and is_open == read for mail, is_open in zip(mails, opened, strict=True))
        state = "read" if read else "unread"
        instruction = phrased(
            rng,
            f'How many {state} email threads with the subject "{subject}" are in my Gmail inbox?',
            f'Count the {state} threads in my Gmail inbox whose subject is "{subject}".',
        )
        return Draw(instruction, {"read": read, "subject": subject}, count, change=change)

    @staticmethod
    def solution(apis: Any, gmail_token: str, read: bool, subject: str) -> None:
        # I list the threads.
        found = all_pages(apis.gmail.show_inbox_threads, access_token=gmail_token, read=read)
        print(len(found))
        # I count those that fit.
        total = len([x for x in found if x["subject"] == subject])
        print(total)
        # That is the answer.
        apis.supervisor.complete_task(answer=total)


class MailStar(Scenario):
    """Star, or archive, all threads in the inbox from one person."""

    DIFFICULTY = 3
    APPS = ("phone", "gmail")
    VARIANTS = ({"field": "starred"}, {"field": "archived"})
    SHOWING = "challenge"

    @staticmethod
    def draw(rng: Random, world: World, person: Person, field: str) -> Draw:
        relationship, sender = world.named(rng, person, ("roommate", "coworker"))
        others = rng.sample([other for other in sorted(person.relationships) if other != sender.id], 3)
        senders = [world.person(one) for one in rng.sample([sender.id] * 3 + others, 6)]
        subjects = rng.sample(pool(SUBJECTS, person.share), 6)
        mails = [(one, person, subject) for one, subject in zip(senders, subjects, strict=True)]
        verb = "Star" if field == "starred" else "Archive"
        instruction = phrased(
            rng,
            f"{verb} all email threads in my Gmail inbox from my {relationship} {sender.first_name}.",
            f"{verb} every thread in my Gmail inbox that {sender.first_name}, my {relationship}, sent.",
        )
        row = {"user.email": person.email, "sender_email_addresses": [sender.email], field: True}
        expect = {"gmail.UserEmailThread": Rows(updated=[row] * 3, fields=[field, "updated_at"])}
        public = {"field": field, "relationship": relationship, "first_name": sender.first_name}
        return Draw(instruction, public, expect=expect, change=lambda collection: send_mails(collection, mails))

    @staticmethod
    def solution(apis: Any, phone_token: str, gmail_token: str, field: str, relationship: str, first_name: str) -> None:
        # I look for the person.
        found = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
        person = next(x for x in found if x["first_name"] == first_name)
        print(person["email"])
        # I list the threads.
        found = all_pages(apis.gmail.show_inbox_threads, access_token=gmail_token, from_email=person["email"])
        print(len(found))
        # I mark them.
        for x in found:
            if field == "starred":
                apis.gmail.mark_thread_starred(access_token=gmail_token, email_thread_id=x["email_thread_id"])
            else:
                apis.gmail.mark_thread_archived(access_token=gmail_token, email_thread_id=x["email_thread_id"])
        # All is done.
        apis.supervisor.complete_task()


class MailNote(Scenario):
    """Mail the content of a note to everybody of a relationship."""

    DIFFICULTY = 3
    APPS = ("simple_note", "phone", "gmail")
    VARIANTS = ({"relationship": "sibling"}, {"relationship": "roommate"}, {"relationship": "coworker"})
    SHOWING = "challenge"

    @staticmethod
    def draw(rng: Random, world: World, person: Person, relationship: str) -> Draw:
        title, content = rng.choice(world.notes[person.id])
        receivers = circle(world, person, relationship)
        instruction = phrased(
            rng,
            f'Send each {relationship} of mine a separate email with the content of my Simple Note "{title}" as the '
            "body and its title as the subject.",
            f'Mail my Simple Note "{title}" to every {relationship} of mine separately: the title as the subject, the '
            "content as the body.",
        )
        row = {"sender.email": person.email, "subject": title, "body": content}
        people = [one for receiver in receivers for one in (person, receiver)]
        expect = {
            "gmail.Email": Rows(added=[row | {"recipient_ids": [one.id]} for one in receivers]),
            "gmail.GlobalEmailThread": Rows(added=[{"updated_at?": True} for _ in receivers]),
            "gmail.UserEmailThread": Rows(added=[{"user.email": one.email} for one in people]),
        }
        return Draw(instruction, {"title": title, "relationship": relationship}, expect=expect)

    @staticmethod
    def solution(
        apis: Any, simple_note_token: str, phone_token: str, gmail_token: str, title: str, relationship: str
    ) -> None:
        # I look for the note.
        found = all_pages(apis.simple_note.search_notes, access_token=simple_note_token, query=title)
        note = next(x for x in found if x["title"] == title)
        note = apis.simple_note.show_note(access_token=simple_note_token, note_id=note["note_id"])
        print(note["content"])
        # I look for the people.
        found = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
        print(len(found))
        # I mail each of them.
        for x in found:
            apis.gmail.send_email(
                access_token=gmail_token, email_addresses=[x["email"]], subject=title, body=note["content"]
            )
        # All is done.
        apis.supervisor.complete_task()
