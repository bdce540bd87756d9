"""Templates of the phone: alarms, contacts, text messages."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import CannotDraw, Draw, Rows, Scenario, circle, phrased
from ..words import ALARMS, RELATIONSHIPS, SENTENCES, pick, pool
from ..world import World


def texts(person: Person, receivers: list[Person], message: str) -> dict[str, Rows]:
    """The rows that one message to each of some people adds: the message, and a copy in both phones."""
    sent = [
        {"receiver.phone_number": one.phone_number, "sender.phone_number": person.phone_number, "message": message}
        for one in receivers
    ]
    copies = [{"user.phone_number": one.phone_number} for receiver in receivers for one in (person, receiver)]
    return {"phone.GlobalTextMessage": Rows(added=sent), "phone.UserTextMessage": Rows(added=copies)}


class AlarmSwitch(Scenario):
    """Switch one alarm on or off, or change its snooze time."""

    DIFFICULTY = 1
    APPS = ("phone",)
    VARIANTS = ({"wish": "on"}, {"wish": "off"}, {"wish": "snooze"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, wish: str) -> Draw:
        label = rng.choice(world.alarms[person.id]).label
        minutes = rng.randrange(10, 30)
        changed: dict[str, Any] = {"snooze_minutes": minutes} if wish == "snooze" else {"enabled": wish == "on"}
        instruction = phrased(
            rng,
            f'Turn {wish} the alarm labelled "{label}" on my phone.',
            f'Please switch my phone alarm "{label}" {wish}.',
        )
        if wish == "snooze":
            instruction = f'Set the snooze time of my phone alarm "{label}" to {minutes} minutes.'

        def change(collection: Any) -> None:
            alarm = collection.phone.Alarm.find_one(user_id=person.id, label=label)
            alarm.enabled = not changed.get("enabled", not alarm.enabled)
            alarm.save()

        row = {"user.phone_number": person.phone_number, "label": label} | changed
        expect = {"phone.Alarm": Rows(updated=[row], fields=list(changed))}
        return Draw(instruction, {"label": label, "changed": changed}, expect=expect, change=change)

    @staticmethod
    def solution(apis: Any, phone_token: str, label: str, changed: dict[str, Any]) -> None:
        # I look for the alarm.
        found = all_pages(apis.phone.show_alarms, access_token=phone_token)
        alarm = next(x for x in found if x["label"] == label)
        print(alarm["alarm_id"])
        # I change it.
        apis.phone.update_alarm(access_token=phone_token, alarm_id=alarm["alarm_id"], **changed)
        # All is done.
        apis.supervisor.complete_task()


class AlarmCreate(Scenario):
    """Set a new alarm."""

    DIFFICULTY = 1
    APPS = ("phone",)

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        used = {alarm.label for alarm in world.alarms[person.id]}
        label = rng.choice([one for one in pool(ALARMS, person.share) if one not in used])
        hour, minute = rng.randrange(10, 22), rng.choice((10, 15, 20, 30, 40, 45, 50))
        time = f"{hour}:{minute}"
        row = {"user.phone_number": person.phone_number, "label": label, "time": time, "enabled": True}
        instruction = phrased(
            rng,
            f'Set an alarm for {time} with the label "{label}" on my phone.',
            f'Add a phone alarm "{label}" at {time}.',
        )
        return Draw(instruction, {"label": label, "time": time}, expect={"phone.Alarm": Rows(added=[row])})

    @staticmethod
    def solution(apis: Any, phone_token: str, label: str, time: str) -> None:
        # I set it.
        apis.phone.create_alarm(access_token=phone_token, time=time, label=label)
        # All is done.
        apis.supervisor.complete_task()


class AlarmsExcept(Scenario):
    """Switch all alarms off, or on, but one."""

    DIFFICULTY = 2
    APPS = ("phone",)
    VARIANTS = ({"on": False}, {"on": True})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, on: bool) -> Draw:
        alarms = world.alarms[person.id]
        kept = rng.choice(alarms).label
        rows = [
            {"user.phone_number": person.phone_number, "label": alarm.label, "enabled": on}
            for alarm in alarms
            if alarm.label != kept and alarm.enabled != on
        ]
        if not rows:
            raise CannotDraw
        state = "on" if on else "off"
        instruction = phrased(
            rng,
            f'Turn {state} all alarms on my phone except the one labelled "{kept}".',
            f'Except for "{kept}", switch every phone alarm of mine {state}.',
        )
        expect = {"phone.Alarm": Rows(updated=rows, fields=["enabled"])}
        return Draw(instruction, {"kept": kept, "on": on}, expect=expect)

    @staticmethod
    def solution(apis: Any, phone_token: str, kept: str, on: bool) -> None:
        # I list the alarms.
        found = all_pages(apis.phone.show_alarms, access_token=phone_token)
        print(len(found))
        # I change the others.
        for x in found:
            if x["label"] != kept:
                apis.phone.update_alarm(access_token=phone_token, alarm_id=x["alarm_id"], enabled=on)
        # All is done.
        apis.supervisor.complete_task()


class ContactQuestion(Scenario):
    """A question about a contact who is named by first name and relationship."""

    DIFFICULTY = 1
    APPS = ("phone",)
    VARIANTS = ({"asked": "email"}, {"asked": "phone_number"}, {"asked": "birthday"}, {"asked": "home_address"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, asked: str) -> Draw:
        relationship, other = world.named(rng, person, RELATIONSHIPS)
        address = f"{other.street_address}, {other.city}, {other.state} {other.zip_code}"
        answer = {"home_address": address}.get(asked) or getattr(other, asked)
        word = {"phone_number": "phone number", "home_address": "home address"}.get(asked, asked)
        instruction = phrased(
            rng,
            f"What is the {word} of my {relationship} {other.first_name}?",
            f"Look up the {word} of {other.first_name}, my {relationship}, in my phone's contacts.",
        )
        public = {"relationship": relationship, "first_name": other.first_name, "asked": asked}
        return Draw(instruction, public, answer)

    @staticmethod
    def solution(apis: Any, phone_token: str, relationship: str, first_name: str, asked: str) -> None:
        # I look for the person.
        found = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
        person = next(x for x in found if x["first_name"] == first_name)
        print(person[asked])
        # That is the answer.
        apis.supervisor.complete_task(answer=person[asked])


class TextRelatives(Scenario):
    """Send one text message to everybody of a relationship."""

    DIFFICULTY = 2
    APPS = ("phone",)
    VARIANTS = ({"relationship": "roommate"}, {"relationship": "coworker"}, {"relationship": "friend"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, relationship: str) -> Draw:
        message = pick(rng, SENTENCES, person.share)
        instruction = phrased(
            rng,
            f'Send the text message "{message}" to each of my {relationship}s.',
            f'Text all of my {relationship}s: "{message}"',
        )
        public = {"message": message, "relationship": relationship}
        return Draw(instruction, public, expect=texts(person, circle(world, person, relationship), message))

    @staticmethod
    def solution(apis: Any, phone_token: str, message: str, relationship: str) -> None:
        # I look for the people.
        found = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
        print(len(found))
        # I text each of them.
        for x in found:
            apis.phone.send_text_message(access_token=phone_token, phone_number=x["phone_number"], message=message)
        # All is done.
        apis.supervisor.complete_task()


class TextPerson(Scenario):
    """Send a text message to one person, named by first name and relationship."""

    DIFFICULTY = 2
    APPS = ("phone",)

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        relationship, other = world.named(rng, person, ("roommate", "coworker", "friend"))
        message = pick(rng, SENTENCES, person.share)
        instruction = phrased(
            rng,
            f'Send my {relationship} {other.first_name} the text message "{message}"',
            f'Text {other.first_name}, my {relationship}: "{message}"',
        )
        public = {"relationship": relationship, "first_name": other.first_name, "message": message}
        return Draw(instruction, public, expect=texts(person, [other], message))

    @staticmethod
    def solution(apis: Any, phone_token: str, relationship: str, first_name: str, message: str) -> None:
        # I look for the person.
        found = all_pages(apis.phone.search_contacts, access_token=phone_token, relationship=relationship)
        person = next(x for x in found if x["first_name"] == first_name)
        print(person["phone_number"])
        # I write the message.
        apis.phone.send_text_message(access_token=phone_token, phone_number=person["phone_number"], message=message)
        # All is done.
        apis.supervisor.complete_task()
