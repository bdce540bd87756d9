"""Templates over two or three apps: the phone knows whom the supervisor means, notes what."""

from random import Random
from typing import Any

from ..databases import save_rows
from ..paging import all_pages
from ..people import Person
from ..template import CannotDraw, Draw, Rows, Scenario, circle, phrased
from ..words import PURPOSES, pick, pool
from ..world import World
from .notes import unused_title
from .phone import texts


class VenmoPay(Scenario):
    """Pay a person who is named by first name and relationship; the phone's contacts know the address."""

    DIFFICULTY = 2
    APPS = ("phone", "venmo")
    VARIANTS = ({"private": False}, {"private": True})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, private: bool) -> Draw:
        relationship, other = world.named(rng, person, ("roommate", "coworker", "friend"))
        amount, purpose = rng.randrange(10, 90), pick(rng, PURPOSES, person.share)
        manner = "privately " if private else ""
        instruction = phrased(
            rng,
            f'Pay my {relationship} {other.first_name} ${amount} {manner}on Venmo with the description "{purpose}".',
            f'Send ${amount} for "{purpose}" {manner}on Venmo to {other.first_name}, my {relationship}.',
        )
        public = {
            "relationship": relationship,
            "first_name": other.first_name,
            "amount": amount,
            "purpose": purpose,
            "private": private,
        }
        emails = {"sender.email": person.email, "receiver.email": other.email}
        paid = emails | {"amount": amount, "description": purpose, "private": private}
        expect = {
            "venmo.Transaction": Rows(added=[paid]),
            "venmo.Notification": Rows(added=[{"user.email": other.email}]),
            "venmo.User": Rows(updated=[{"email": person.email}, {"email": other.email}], fields=["venmo_balance"]),
        }
        return Draw(instruction, public, expect=expect)

    @staticmethod
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
        # I look for the person.
        found = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
        person = next(x for x in found if x["first_name"] == first_name)
        print(person["email"])
        # I pay.
        apis.venmo.create_transaction(
            access_token=venmo_token,
            receiver_email=person["email"],
            amount=amount,
            description=purpose,
            private=private,
        )
        # All is done.
        apis.supervisor.complete_task()


class VenmoRequest(Scenario):
    """Request money from everybody of a relationship."""

    DIFFICULTY = 2
    APPS = ("phone", "venmo")
    VARIANTS = ({"relationship": "roommate"}, {"relationship": "coworker"}, {"relationship": "sibling"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, relationship: str) -> Draw:
        amount, purpose = rng.randrange(10, 90), pick(rng, PURPOSES, person.share)
        others = circle(world, person, relationship)
        instruction = phrased(
            rng,
            f'Request ${amount} for "{purpose}" from each {relationship} of mine on Venmo.',
            f'On Venmo, ask every {relationship} I have for ${amount}, with the description "{purpose}".',
        )
        rows = [
            {"sender.email": person.email, "receiver.email": one.email, "amount": amount, "description": purpose}
            for one in others
        ]
        expect = {
            "venmo.PaymentRequest": Rows(added=rows),
            "venmo.Notification": Rows(added=[{"user.email": one.email} for one in others]),
        }
        public = {"relationship": relationship, "amount": amount, "purpose": purpose}
        return Draw(instruction, public, expect=expect)

    @staticmethod
    def solution(apis: Any, phone_token: str, venmo_token: str, relationship: str, amount: float, purpose: str) -> None:
        # I look for the people.
        found = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
        print(len(found))
        # I ask each of them.
        for x in found:
            apis.venmo.create_payment_request(
                access_token=venmo_token, user_email=x["email"], amount=amount, description=purpose
            )
        # All is done.
        apis.supervisor.complete_task()


class RequestsApprove(Scenario):
    """Approve the pending payment requests of some people for one purpose, and deny or leave those of the others."""

    DIFFICULTY = 3
    APPS = ("phone", "venmo")
    VARIANTS = (
        {"relationship": "roommate", "deny": False},
        {"relationship": "roommate", "deny": True},
        {"relationship": "coworker", "deny": False},
        {"relationship": "coworker", "deny": True},
    )

    @staticmethod
    def draw(rng: Random, world: World, person: Person, relationship: str, deny: bool) -> Draw:
        inside = person.related(relationship)
        outside = [other for other in sorted(person.relationships) if other not in inside]
        purpose, other_purpose = rng.sample(pool(PURPOSES, person.share), 2)
        senders = [*((one, purpose) for one in inside), (inside[0], other_purpose)]
        senders += [(one, rng.choice((purpose, other_purpose))) for one in rng.sample(outside, 3)]
        rng.shuffle(senders)
        amounts = rng.sample(range(5, 40), len(senders))
        requests: list[dict[str, Any]] = [
            {"sender_id": sender, "receiver_id": person.id, "amount": float(amount), "description": text}
            for (sender, text), amount in zip(senders, amounts, strict=True)
        ]

        def change(collection: Any) -> None:
            save_rows(collection.venmo.PaymentRequest, requests, quiet=True)

        paid = [one for one in requests if one["sender_id"] in inside and one["description"] == purpose]
        decided = requests if deny else paid
        tail = " and deny all others" if deny else ""
        instruction = phrased(
            rng,
            f'Approve all pending Venmo payment requests for "{purpose}" from my {relationship}s{tail}.',
            f'Of my pending Venmo payment requests, approve those from {relationship}s for "{purpose}"{tail}.',
        )
        emails = [world.person(one["sender_id"]).email for one in paid]
        rows = [
            {"sender.email": email, "receiver.email": person.email, "amount": one["amount"]}
            for email, one in zip(emails, paid, strict=True)
        ]
        sent = [
            {"receiver.email": row["sender.email"], "sender.email": person.email, "amount": row["amount"]}
            for row in rows
        ]
        fates = [
            {"amount": one["amount"], "approved_at?": one in paid, "denied_at?": one not in paid} for one in decided
        ]
        expect = {
            "venmo.PaymentRequest": Rows(updated=fates, fields=["approved_at", "denied_at", "updated_at"]),
            "venmo.Transaction": Rows(added=sent),
            "venmo.Notification": Rows(added=[{"user.email": world.person(one["sender_id"]).email} for one in decided]),
            "venmo.User": Rows(
                updated=[{"email": email} for email in sorted({person.email, *emails})], fields=["venmo_balance"]
            ),
        }
        public = {"relationship": relationship, "purpose": purpose, "deny": deny}
        return Draw(instruction, public, expect=expect, change=change)

    @staticmethod
    def solution(apis: Any, phone_token: str, venmo_token: str, relationship: str, purpose: str, deny: bool) -> None:
        # I look for the people.
        contacts = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
        emails = [x["email"] for x in contacts]
        print(len(emails))
        # I list the requests.
        found = all_pages(apis.venmo.show_received_payment_requests, access_token=venmo_token, status="pending")
        print(len(found))
        # I decide on each.
        if deny:
            for x in found:
                number = x["payment_request_id"]
                if x["sender"]["email"] in emails and x["description"] == purpose:
                    apis.venmo.approve_payment_request(access_token=venmo_token, payment_request_id=number)
                else:
                    apis.venmo.deny_payment_request(access_token=venmo_token, payment_request_id=number)
        else:
            for x in found:
                if x["sender"]["email"] in emails and x["description"] == purpose:
                    apis.venmo.approve_payment_request(
                        access_token=venmo_token, payment_request_id=x["payment_request_id"]
                    )
        # All is done.
        apis.supervisor.complete_task()


class BillFromNote(Scenario):
    """Request the shares of a bill that a note lists, each from the right person."""

    DIFFICULTY = 3
    APPS = ("simple_note", "phone", "venmo")
    VARIANTS = ({"private": False}, {"private": True})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, private: bool) -> Draw:
        title = unused_title(rng, world, person)
        purpose = pick(rng, PURPOSES, person.share)
        others = [world.person(other) for other in rng.sample(sorted(person.relationships), 4)]
        shares = list(zip(others, rng.sample(range(8, 60), len(others)), strict=True))
        paid = rng.randrange(len(shares))  # one of them has paid already
        lines = [
            f"{other.name}: ${amount}" + (" (paid)" if place == paid else "")
            for place, (other, amount) in enumerate(shares)
        ]

        def change(collection: Any) -> None:
            note = {"user_id": person.id, "title": title, "content": "\n".join(lines), "pinned": False}
            save_rows(collection.simple_note.Note, [note])

        owing = [share for place, share in enumerate(shares) if place != paid]
        manner = "privately " if private else ""
        instruction = phrased(
            rng,
            f'My Simple Note "{title}" lists who owes me how much. Request the money {manner}on Venmo from everybody '
            f'who has not paid yet, with the description "{purpose}".',
            f'Request {manner}on Venmo for "{purpose}" what my Simple Note "{title}" says people owe me, unless they '
            "have paid.",
        )
        asked = {"sender.email": person.email, "description": purpose, "private": private}
        rows = [asked | {"receiver.email": other.email, "amount": amount} for other, amount in owing]
        expect = {
            "venmo.PaymentRequest": Rows(added=rows),
            "venmo.Notification": Rows(added=[{"user.email": other.email} for other, _ in owing]),
        }
        return Draw(instruction, {"title": title, "purpose": purpose, "private": private}, expect=expect, change=change)

    @staticmethod
    def solution(
        apis: Any,
        simple_note_token: str,
        phone_token: str,
        venmo_token: str,
        title: str,
        purpose: str,
        private: bool,
    ) -> None:
        # I look for the note.
        found = all_pages(apis.simple_note.search_notes, access_token=simple_note_token, query=title)
        note = next(x for x in found if x["title"] == title)
        note = apis.simple_note.show_note(access_token=simple_note_token, note_id=note["note_id"])
        print(note["content"])
        # I look for the people.
        contacts = all_pages(apis.phone.search_contacts, access_token=phone_token)
        emails = {x["first_name"] + " " + x["last_name"]: x["email"] for x in contacts}
        print(len(emails))
        # I ask each of them.
        for line in note["content"].splitlines():
            if not line.endswith("(paid)"):
                name, amount = line.split(": $")
                apis.venmo.create_payment_request(
                    access_token=venmo_token,
                    user_email=emails[name],
                    amount=float(amount),
                    description=purpose,
                    private=private,
                )
        # All is done.
        apis.supervisor.complete_task()


class NoteToText(Scenario):
    """Text the content of a note to one person."""

    DIFFICULTY = 3
    APPS = ("simple_note", "phone")

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        title, content = rng.choice(world.notes[person.id])
        relationship, other = world.named(rng, person, ("roommate", "coworker", "friend"))
        instruction = phrased(
            rng,
            f'Text the content of my Simple Note "{title}" to my {relationship} {other.first_name}.',
            f'Send {other.first_name}, my {relationship}, a text message with what my Simple Note "{title}" says.',
        )
        public = {"title": title, "relationship": relationship, "first_name": other.first_name}
        return Draw(instruction, public, expect=texts(person, [other], content))

    @staticmethod
    def solution(
        apis: Any, simple_note_token: str, phone_token: str, title: str, relationship: str, first_name: str
    ) -> None:
        # I look for the note.
        found = all_pages(apis.simple_note.search_notes, access_token=simple_note_token, query=title)
        note = next(x for x in found if x["title"] == title)
        note = apis.simple_note.show_note(access_token=simple_note_token, note_id=note["note_id"])
        print(note["content"])
        # I look for the person.
        found = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
        person = next(x for x in found if x["first_name"] == first_name)
        print(person["phone_number"])
        # I write the message.
        apis.phone.send_text_message(
            access_token=phone_token, phone_number=person["phone_number"], message=note["content"]
        )
        # All is done.
        apis.supervisor.complete_task()


class ContactNote(Scenario):
    """Write a note of the names of everybody of a relationship."""

    DIFFICULTY = 2
    APPS = ("phone", "simple_note")
    VARIANTS = ({"relationship": "roommate"}, {"relationship": "coworker"}, {"relationship": "friend"})
    SHOWING = "hidden"

    @staticmethod
    def draw(rng: Random, world: World, person: Person, relationship: str) -> Draw:
        title = unused_title(rng, world, person)
        others = circle(world, person, relationship)
        if len({one.first_name for one in others}) < len(others):
            raise CannotDraw
        content = ", ".join(sorted(one.first_name for one in others))
        row = {"user.email": person.email, "title": title, "content": content}
        instruction = (
            f'Create a note in Simple Note with the title "{title}" and as content the first names of my '
            f"{relationship}s, sorted by the alphabet, with a comma and a space between them."
        )
        expect = {"simple_note.Note": Rows(added=[row])}
        return Draw(instruction, {"title": title, "relationship": relationship}, expect=expect)

    @staticmethod
    def solution(apis: Any, phone_token: str, simple_note_token: str, title: str, relationship: str) -> None:
        # I look for the people.
        found = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
        content = ", ".join(sorted(x["first_name"] for x in found))
        print(content)
        # I write the note.
        apis.simple_note.create_note(access_token=simple_note_token, title=title, content=content)
        # All is done.
        apis.supervisor.complete_task()
