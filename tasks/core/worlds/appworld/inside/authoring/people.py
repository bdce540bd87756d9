"""The people of an authored world: who they are and how they know each other. Pure; no database."""

from dataclasses import dataclass
from random import Random
from typing import Any

from .words import FIRST_NAMES, LAST_NAMES, SHARES, Share, pool

ACCOUNTS = ("amazon", "phone", "file_system", "spotify", "venmo", "gmail", "splitwise", "simple_note", "todoist")
_STREETS = ("Birch", "Cedar", "Elm", "Hazel", "Larch", "Maple", "Poplar", "Rowan", "Spruce", "Willow")
_CITIES = (("Fairview", "Oregon"), ("Milton", "Vermont"), ("Ashford", "Colorado"), ("Lakeside", "Michigan"))
_CIRCLE = 12
"""People of one share; they know each other and nobody else."""
_NAMESAKES = 3
"""Neighbours in everybody's contacts who share the first name of somebody closer."""
_ROOMMATES = 3
_COMPANIES = 4


@dataclass(frozen=True)
class Person:
    """One person; `id` is also the id of their account in every app."""

    id: int
    share: Share
    """Whose words this person's things have; tasks of other splits never meet the person."""
    first_name: str
    last_name: str
    email: str
    phone_number: str
    birthday: str
    sex: str
    street_address: str
    city: str
    state: str
    zip_code: int
    card_number: int
    cvv_number: int
    passwords: dict[str, str]
    relationships: dict[int, tuple[str, ...]]
    """Id of another person to what they are to this one; symmetric."""

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}"

    def related(self, relationship: str) -> list[int]:
        """Ids of those who are this to the person, ascending."""
        return [other for other, names in sorted(self.relationships.items()) if relationship in names]


def make_people(rng: Random) -> list[Person]:
    """A circle of twelve people per share, with different first names: the engine's main users must have them."""
    return [person for place, share in enumerate(SHARES) for person in _make_circle(rng, share, place * _CIRCLE)]


def _make_circle(rng: Random, share: Share, before: int) -> list[Person]:
    first_names = rng.sample(pool(FIRST_NAMES, share), _CIRCLE)
    last_names = rng.sample(LAST_NAMES, _CIRCLE)
    return [
        _make_person(rng, index, before, share, names)
        for index, names in enumerate(zip(first_names, last_names, strict=True))
    ]


def _make_person(rng: Random, index: int, before: int, share: Share, names: tuple[str, str]) -> Person:
    city, state = rng.choice(_CITIES)
    return Person(
        id=before + index + 1,
        share=share,
        first_name=names[0],
        last_name=names[1],
        email=f"{names[0]}.{names[1]}@gmail.com".lower(),
        phone_number=f"{rng.randrange(200, 990)}555{1000 + 7 * (before + index) + rng.randrange(7):04d}",
        birthday=f"{rng.randrange(1960, 2000)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}",
        sex=rng.choice(("female", "male")),
        street_address=f"{rng.randrange(10, 999)} {rng.choice(_STREETS)} Street",
        city=city,
        state=state,
        zip_code=rng.randrange(10_000, 99_999),
        card_number=4_000_000_000_000_000 + 10_000_000 * (before + index) + rng.randrange(10_000_000),
        cvv_number=rng.randrange(100, 1000),
        passwords={account: _password(rng) for account in ACCOUNTS},
        relationships=_relationships(index, before),
    )


def namesakes(person: Person, people: list[Person]) -> list[dict[str, Any]]:
    """Contacts of the person who have no account: neighbours, each with the first name of somebody whom a task names.

    So a first name alone does not say who is meant; the relationship does.
    """
    found = []
    for place, other in enumerate(sorted(person.relationships)[:: len(person.relationships) // _NAMESAKES]):
        first_name = people[other - 1].first_name
        others = [name for name in LAST_NAMES if name != people[other - 1].last_name]
        last_name = others[(person.id + place) % len(others)]
        found.append(
            {
                "first_name": first_name,
                "last_name": last_name,
                "email": f"{first_name}.{last_name}@gmail.com".lower(),
                "phone_number": f"2005559{person.id:02d}{place}",
                "relationships": ["neighbor"],
            }
        )
    return found


def _password(rng: Random) -> str:
    return "".join(rng.choices("abcdefghjkmnpqrstuvwxyz23456789", k=9))


def _relationships(index: int, before: int) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for other in range(_CIRCLE):
        distance = min((index - other) % _CIRCLE, (other - index) % _CIRCLE)
        rules = {
            "roommate": index // _ROOMMATES == other // _ROOMMATES,
            "coworker": index % _COMPANIES == other % _COMPANIES,
            "friend": distance in (1, 2, 5) and index // _ROOMMATES != other // _ROOMMATES,
            "sibling": other == _CIRCLE - 1 - index,
        }
        names = tuple(name for name, holds in rules.items() if holds)
        if other != index and names:
            found[before + other + 1] = names
    return found
