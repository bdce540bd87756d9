"""Record an expense in a group, split equally among its members."""

from random import Random
from typing import Any

from ..databases import save_rows
from ..paging import all_pages
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 2
APPS = ("splitwise",)
VARIANTS = ({"payer": "me"}, {"payer": "other"})
_GROUPS = ("Lake house", "Flat share", "Choir trip", "Board games")
_PURPOSES = ("Firewood", "Groceries", "Fuel", "Snacks")


def draw(rng: Random, world: World, person: Person, payer: str) -> Draw:
    group, purpose = rng.choice(_GROUPS), rng.choice(_PURPOSES)
    members = [person, *(world.person(other) for other in rng.sample(sorted(person.relationships), 3))]
    paying = person if payer == "me" else members[rng.randrange(1, len(members))]
    amount = 4 * rng.randrange(5, 40)

    def change(collection: Any) -> None:
        save_rows(collection.splitwise.Group, [{"user_id": person.id, "name": group, "invitation_code": "join1"}])
        created = collection.splitwise.Group.find_one(user_id=person.id, name=group)
        links = [{"group_id": created.id, "user_id": member.id} for member in members]
        save_rows(collection.splitwise.GroupMember, links)

    who = "I" if payer == "me" else paying.name
    return Draw(
        f'{who} paid ${amount} for "{purpose}". Record it in my Splitwise group "{group}", '
        "split equally among all its members.",
        {"payer_name": paying.name, "amount": amount, "purpose": purpose, "group": group},
        {"payer_email": paying.email, "debtors": sorted(member.email for member in members), "share": amount / 4},
        change=change,
    )


def solution(apis: Any, splitwise_token: str, payer_name: str, amount: float, purpose: str, group: str) -> None:
    groups = all_pages(apis.splitwise.show_groups, access_token=splitwise_token)
    found = next(one for one in groups if one["name"] == group)
    payer = next(member for member in found["members"] if member["name"] == payer_name)
    apis.splitwise.record_expense(
        access_token=splitwise_token,
        description=purpose,
        paid_amount=amount,
        payer_email=payer["email"],
        debtor_emails=[member["email"] for member in found["members"]],
        group_id=found["group_id"],
    )
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, public_data: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only expenses, their shares and notifications of them changed."):
        test.case(
            models.changed_model_names(),
            "==",
            {"splitwise.Expense", "splitwise.ExpenseShare", "splitwise.Notification"},
        )
    with test("assert notifications were only added, one per other member."):
        noted, altered, deleted = models.changed_records("splitwise.Notification")
        test.case((len(altered), len(deleted)), "==", (0, 0))
        others = sorted(email for email in private_data.debtors if email != main_user.email)
        test.case(sorted(one.user.email for one in noted), "==", others)
    added, updated, removed = models.changed_records("splitwise.Expense")
    with test("assert one expense was added and none updated or removed."):
        test.case((len(added), len(updated), len(removed)), "==", (1, 0, 0))
    with test("assert group, payer, amount and description are as asked."):
        test.case(
            (added[0].group.name, added[0].payer.email, added[0].amount, added[0].description),
            "==",
            (public_data.group, private_data.payer_email, public_data.amount, public_data.purpose),
        )
    shares, updated, removed = models.changed_records("splitwise.ExpenseShare")
    with test("assert every member owes an equal share."):
        test.case(sorted(share.debtor.email for share in shares), "==", list(private_data.debtors))
        test.case({share.share_amount for share in shares}, "==", {private_data.share})
