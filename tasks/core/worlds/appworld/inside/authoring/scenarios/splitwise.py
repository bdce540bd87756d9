"""Templates of Splitwise: the app that no task of train has and no demonstration shows."""

from random import Random
from typing import Any

from ..databases import save_rows
from ..paging import all_pages
from ..people import Person
from ..template import Change, Draw, Rows, Scenario, phrased
from ..words import GROUPS, PURPOSES, pick, pool
from ..world import World


def group(person: Person, name: str, members: list[Person]) -> Change:
    """The rows that make a group of the person and its members."""

    def change(collection: Any) -> None:
        row = {"user_id": person.id, "name": name, "invitation_code": f"join{len(name)}"}
        save_rows(collection.splitwise.Group, [row])
        created = collection.splitwise.Group.find_one(user_id=person.id, name=name)
        links = [{"group_id": created.id, "user_id": member.id} for member in members]
        save_rows(collection.splitwise.GroupMember, links)

    return change


class ExpenseGroup(Scenario):
    """Record an expense in a group, split equally among its members."""

    DIFFICULTY = 2
    APPS = ("splitwise",)
    VARIANTS = ({"mine": True}, {"mine": False})
    SHOWING = "hidden"

    @staticmethod
    def draw(rng: Random, world: World, person: Person, mine: bool) -> Draw:
        name, purpose = pick(rng, GROUPS, person.share), pick(rng, PURPOSES, person.share)
        members = [person, *(world.person(other) for other in rng.sample(sorted(person.relationships), 3))]
        payer = person if mine else members[1]
        amount = 4 * rng.randrange(3, 24)
        others = [{"user.email": one.email} for one in members[1:]]
        row = {"group.name": name, "payer.email": payer.email, "amount": amount, "description": purpose}
        expect = {
            "splitwise.Expense": Rows(added=[row]),
            "splitwise.ExpenseShare": Rows(
                added=[{"debtor.email": one.email, "share_amount": amount / 4} for one in members]
            ),
            "splitwise.Notification": Rows(added=others),
        }
        who = "I" if mine else payer.name
        return Draw(
            f'{who} paid ${amount} for "{purpose}". Record it in my Splitwise group "{name}", split equally among all '
            "its members.",
            {"payer": payer.name, "amount": amount, "purpose": purpose, "name": name},
            expect=expect,
            change=group(person, name, members),
        )

    @staticmethod
    def solution(apis: Any, splitwise_token: str, payer: str, amount: float, purpose: str, name: str) -> None:
        # I look for the group.
        found = all_pages(apis.splitwise.show_groups, access_token=splitwise_token)
        group = next(x for x in found if x["name"] == name)
        emails = {x["name"]: x["email"] for x in group["members"]}
        print(len(emails))
        # I record it.
        apis.splitwise.record_expense(
            access_token=splitwise_token,
            description=purpose,
            paid_amount=amount,
            payer_email=emails[payer],
            debtor_emails=list(emails.values()),
            group_id=group["group_id"],
        )
        # All is done.
        apis.supervisor.complete_task()


class GroupMembers(Scenario):
    """A question: how many members a group has."""

    DIFFICULTY = 1
    APPS = ("splitwise",)
    SHOWING = "hidden"

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        name = pick(rng, GROUPS, person.share)
        others = rng.sample(sorted(person.relationships), rng.randrange(2, 6))
        members = [person, *(world.person(other) for other in others)]
        return Draw(
            f'How many members does my Splitwise group "{name}" have, me included?',
            {"name": name},
            len(members),
            change=group(person, name, members),
        )

    @staticmethod
    def solution(apis: Any, splitwise_token: str, name: str) -> None:
        # I look for the group.
        found = all_pages(apis.splitwise.show_groups, access_token=splitwise_token)
        group = next(x for x in found if x["name"] == name)
        print(len(group["members"]))
        # That is the answer.
        apis.supervisor.complete_task(answer=len(group["members"]))


class GroupRename(Scenario):
    """Give a group another name."""

    DIFFICULTY = 1
    APPS = ("splitwise",)
    SHOWING = "hidden"

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        old, new = rng.sample(pool(GROUPS, person.share), 2)
        members = [person, *(world.person(other) for other in rng.sample(sorted(person.relationships), 2))]
        return Draw(
            phrased(
                rng,
                f'Rename my Splitwise group "{old}" to "{new}".',
                f'Change the name of my Splitwise group "{old}" to "{new}".',
            ),
            {"old": old, "new": new},
            expect={
                "splitwise.Group": Rows(updated=[{"name": new, "user_id": person.id}], fields=["name"]),
                "splitwise.Notification": Rows(added=[{"user.email": one.email} for one in members[1:]]),
            },
            change=group(person, old, members),
        )

    @staticmethod
    def solution(apis: Any, splitwise_token: str, old: str, new: str) -> None:
        # I look for the group.
        found = all_pages(apis.splitwise.show_groups, access_token=splitwise_token)
        number = next(x["group_id"] for x in found if x["name"] == old)
        print(number)
        # I rename it.
        apis.splitwise.update_group(access_token=splitwise_token, group_id=number, name=new)
        # All is done.
        apis.supervisor.complete_task()
