"""Everything that an authored world holds before any task, from one seed. Pure; `databases` writes it down."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from .music import Music, make_music
from .people import Person, make_people
from .shop import Product, make_products
from .words import (
    ALARMS,
    FILE_KINDS,
    FILE_NAMES,
    FOLDERS,
    PLAYLISTS,
    PRIORITIES,
    PROJECTS,
    PURPOSES,
    SENTENCES,
    TITLES,
    TODOS,
    Share,
    pick,
    pool,
)

NOW = datetime(2023, 5, 18, 12, 0, 0)
"""The day on which every task plays: AppWorld's own."""


@dataclass(frozen=True)
class Library:
    """One person's music: song ids of the library, of the liked songs and of each playlist."""

    songs: tuple[int, ...]
    liked: tuple[int, ...]
    playlists: dict[str, tuple[int, ...]]
    following: tuple[int, ...]
    """Artist ids."""


@dataclass(frozen=True)
class Transaction:
    """One payment between two people (ids)."""

    sender: int
    receiver: int
    amount: float
    description: str
    created_at: datetime


@dataclass(frozen=True)
class Alarm:
    """One alarm of a phone."""

    time: str
    label: str
    enabled: bool
    repeat_days: tuple[str, ...]


@dataclass(frozen=True)
class Todo:
    """One task of a to-do project."""

    title: str
    priority: str
    completed: bool


@dataclass(frozen=True)
class World:
    """People and what they own, keyed by person id."""

    people: tuple[Person, ...]
    music: Music
    products: tuple[Product, ...]
    libraries: dict[int, Library]
    transactions: tuple[Transaction, ...]
    alarms: dict[int, tuple[Alarm, ...]]
    notes: dict[int, tuple[tuple[str, str], ...]]
    """Title and content."""
    files: dict[int, dict[str, str]]
    """Contents by paths below the person's home."""
    todos: dict[int, dict[str, tuple[Todo, ...]]]
    """Tasks per project."""

    def person(self, person_id: int) -> Person:
        return self.people[person_id - 1]

    def named(self, rng: Random, person: Person, relationships: Sequence[str]) -> tuple[str, Person]:
        """Return a relationship and who has it to `person`; nobody else who has it shares that first name."""
        found = []
        for relationship in relationships:
            related = [self.person(other) for other in person.related(relationship)]
            first_names = [other.first_name for other in related]
            found += [(relationship, other) for other in related if first_names.count(other.first_name) == 1]
        return rng.choice(found)


def make_world(seed: int) -> World:
    """Same seed, same world."""
    rng = Random(f"world:{seed}")
    people, music = make_people(rng), make_music(rng)
    shares = {person.id: person.share for person in people}
    return World(
        people=tuple(people),
        music=music,
        products=make_products(rng),
        libraries={person_id: _make_library(rng, music, share) for person_id, share in shares.items()},
        transactions=_make_transactions(rng, people),
        alarms={person_id: _make_alarms(rng, share) for person_id, share in shares.items()},
        notes={person_id: _make_notes(rng, share) for person_id, share in shares.items()},
        files={person_id: _make_files(rng, share) for person_id, share in shares.items()},
        todos={person_id: _make_todos(rng, share) for person_id, share in shares.items()},
    )


_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _make_library(rng: Random, music: Music, share: Share) -> Library:
    songs = music.part(share)
    song_ids = [song.id for song in songs]
    artist_ids = sorted({song.artist_id for song in songs})
    titles = rng.sample(pool(PLAYLISTS, share), 3)
    return Library(
        songs=tuple(rng.sample(song_ids, rng.randrange(10, 15))),
        liked=tuple(rng.sample(song_ids, rng.randrange(8, 12))),
        playlists={title: tuple(rng.sample(song_ids, rng.randrange(6, 9))) for title in titles},
        following=tuple(rng.sample(artist_ids, 2)),
    )


def _make_transactions(rng: Random, people: list[Person]) -> tuple[Transaction, ...]:
    """Amounts of one sender differ: no question for the largest has two answers."""
    made: list[Transaction] = []
    for person in people:
        amounts = rng.sample(range(4, 90), 12)
        for other, amount in zip(rng.choices(sorted(person.relationships), k=len(amounts)), amounts, strict=True):
            made.append(
                Transaction(
                    sender=person.id,
                    receiver=other,
                    amount=amount + rng.choice((0.0, 0.5)),
                    description=pick(rng, PURPOSES, person.share),
                    created_at=NOW - timedelta(days=rng.randrange(2, 170), minutes=rng.randrange(600)),
                )
            )
    return tuple(sorted(made, key=lambda one: one.created_at))


def _make_alarms(rng: Random, share: Share) -> tuple[Alarm, ...]:
    times = rng.sample([f"{hour:02d}:{minute:02d}" for hour in range(5, 22) for minute in (0, 15, 30, 45)], 6)
    return tuple(
        Alarm(time, label, rng.random() < 0.6, tuple(sorted(rng.sample(_DAYS, 3), key=_DAYS.index)))
        for time, label in zip(times, rng.sample(pool(ALARMS, share), 6), strict=True)
    )


def _make_notes(rng: Random, share: Share) -> tuple[tuple[str, str], ...]:
    """Each note has two to five lines."""
    titles = rng.sample(pool(TITLES, share), 3)
    return tuple((title, "\n".join(rng.sample(pool(SENTENCES, share), rng.randrange(2, 6)))) for title in titles)


def _make_files(rng: Random, share: Share) -> dict[str, str]:
    """Three folders, each with files of every kind."""
    files: dict[str, str] = {}
    for folder in rng.sample(pool(FOLDERS, share), 3):
        names = rng.sample(pool(FILE_NAMES, share), 7)
        kinds = [*FILE_KINDS, *rng.choices(FILE_KINDS, k=len(names) - len(FILE_KINDS))]
        for name, kind in zip(names, kinds, strict=True):
            files[f"{folder}/{name}.{kind}"] = pick(rng, SENTENCES, share)
    return files


def _make_todos(rng: Random, share: Share) -> dict[str, tuple[Todo, ...]]:
    """Every project has an open task of every priority, and a completed one."""
    projects: dict[str, tuple[Todo, ...]] = {}
    for project in rng.sample(pool(PROJECTS, share), 3):
        titles = rng.sample(pool(TODOS, share), 7)
        priorities = [*PRIORITIES, *rng.choices(PRIORITIES, k=len(titles) - len(PRIORITIES))]
        projects[project] = tuple(
            Todo(title, priority, completed=place > len(PRIORITIES) and (place == 4 or rng.random() < 0.4))
            for place, (title, priority) in enumerate(zip(titles, priorities, strict=True))
        )
    return projects
