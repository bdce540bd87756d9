"""Switch one alarm on or off, or change its snooze time."""

from random import Random
from typing import Any

from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 1
APPS = ("phone",)
VARIANTS = ({"wish": "enable"}, {"wish": "disable"}, {"wish": "snooze"})


def draw(rng: Random, world: World, person: Person, wish: str) -> Draw:
    label = rng.choice(world.alarms[person.id]).label
    minutes = rng.randrange(6, 20)
    instructions = {
        "enable": f'Turn on the alarm labelled "{label}" on my phone.',
        "disable": f'Turn off the alarm labelled "{label}" on my phone.',
        "snooze": f'Set the snooze time of the alarm labelled "{label}" on my phone to {minutes} minutes.',
    }
    wishes: dict[str, dict[str, Any]] = {
        "enable": {"enabled": True},
        "disable": {"enabled": False},
        "snooze": {"snooze_minutes": minutes},
    }
    changed = wishes[wish]

    def change(collection: Any) -> None:
        alarm = collection.phone.Alarm.find_one(user_id=person.id, label=label)
        alarm.enabled = not changed.get("enabled", not alarm.enabled)
        alarm.save()

    return Draw(instructions[wish], {"label": label, "changed": changed}, change=change)


def solution(apis: Any, phone_token: str, label: str, changed: dict[str, Any]) -> None:
    alarms = apis.phone.show_alarms(access_token=phone_token, page_limit=20)
    alarm = next(one for one in alarms if one["label"] == label)
    apis.phone.update_alarm(access_token=phone_token, alarm_id=alarm["alarm_id"], **changed)
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, public_data: Any, main_user: Any) -> None:
    with test("assert only alarms changed."):
        test.case(models.changed_model_names(), "==", {"phone.Alarm"})
    added, updated, removed = models.changed_records("phone.Alarm")
    with test("assert one alarm was updated and none added or removed."):
        test.case((len(added), len(updated), len(removed)), "==", (0, 1, 0))
    with test("assert it is the supervisor's alarm with that label."):
        test.case((updated[0].label, updated[0].user.phone_number), "==", (public_data.label, main_user.phone_number))
    with test("assert the alarm is set as asked and otherwise unchanged."):
        test.case({name: getattr(updated[0], name) for name in public_data.changed}, "==", dict(public_data.changed))
        test.case(models.changed_field_names("phone.Alarm", updated[0].id), "==", set(public_data.changed))
