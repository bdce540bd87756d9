"""The people of an authored world: who they are and how they know each other. Pure; no database."""

from dataclasses import dataclass
from random import Random

FIRST_NAMES = ("Amara", "Boris", "Celia", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Ingrid", "Jonas", "Kei", "Luis")
_LAST_NAMES = (
    "Abbott",
    "Brandt",
    "Castell",
    "Dorsey",
    "Ekholm",
    "Fontana",
    "Grayson",
    "Hollis",
    "Ibarra",
    "Jansen",
    "Kowal",
    "Lindner",
)
ACCOUNTS = ("amazon", "phone", "file_system", "spotify", "venmo", "gmail", "splitwise", "simple_note", "todoist")
_STREETS = ("Birch", "Cedar", "Elm", "Hazel", "Larch", "Maple", "Poplar", "Rowan", "Spruce", "Willow")
_CITIES = (("Fairview", "Oregon"), ("Milton", "Vermont"), ("Ashford", "Colorado"), ("Lakeside", "Michigan"))
_ROOMMATES = 3
_COMPANIES = 4


@dataclass(frozen=True)
class Person:
    """One person; `id` is also the id of their account in every app."""

    id: int
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
    """Twelve people with different first names, so that an instruction can name one by it."""
    last_names = rng.sample(_LAST_NAMES, len(_LAST_NAMES))
    return [_make_person(rng, index, first, last_names[index]) for index, first in enumerate(FIRST_NAMES)]


def _make_person(rng: Random, index: int, first_name: str, last_name: str) -> Person:
    city, state = rng.choice(_CITIES)
    return Person(
        id=index + 1,
        first_name=first_name,
        last_name=last_name,
        email=f"{first_name}.{last_name}@gmail.com".lower(),
        phone_number=f"{rng.randrange(200, 990)}555{1000 + 7 * index + rng.randrange(7):04d}",
        birthday=f"{rng.randrange(1960, 2000)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}",
        sex=rng.choice(("female", "male")),
        street_address=f"{rng.randrange(10, 999)} {rng.choice(_STREETS)} Street",
        city=city,
        state=state,
        zip_code=rng.randrange(10_000, 99_999),
        card_number=4_000_000_000_000_000 + 10_000_000 * index + rng.randrange(10_000_000),
        cvv_number=rng.randrange(100, 1000),
        passwords={account: _password(rng) for account in ACCOUNTS},
        relationships=_relationships(index),
    )


def _password(rng: Random) -> str:
    return "".join(rng.choices("abcdefghjkmnpqrstuvwxyz23456789", k=9))


def _relationships(index: int) -> dict[int, tuple[str, ...]]:
    count = len(FIRST_NAMES)
    found: dict[int, tuple[str, ...]] = {}
    for other in range(count):
        distance = min((index - other) % count, (other - index) % count)
        rules = {
            "roommate": index // _ROOMMATES == other // _ROOMMATES,
            "coworker": index % _COMPANIES == other % _COMPANIES,
            "friend": distance in (1, 2, 5) and index // _ROOMMATES != other // _ROOMMATES,
            "sibling": other == count - 1 - index,
        }
        names = tuple(name for name, holds in rules.items() if holds)
        if other != index and names:
            found[other + 1] = names
    return found
