"""Everything that an authored world holds before any task, from one seed. Pure; `databases` writes it down."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from .music import Music, make_music
from .people import Person, make_people
from .shop import Product, make_products

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
    files: dict[int, tuple[str, ...]]
    """Paths below the person's home."""
    todos: dict[int, dict[str, tuple[Todo, ...]]]
    """Tasks per project."""

    def person(self, person_id: int) -> Person:
        return self.people[person_id - 1]


def make_world(seed: int) -> World:
    """Same seed, same world."""
    rng = Random(f"world:{seed}")
    people, music = make_people(rng), make_music(rng)
    ids = [person.id for person in people]
    return World(
        people=tuple(people),
        music=music,
        products=make_products(rng),
        libraries={person_id: _make_library(rng, music) for person_id in ids},
        transactions=_make_transactions(rng, people),
        alarms={person_id: _make_alarms(rng) for person_id in ids},
        notes={person_id: _make_notes(rng) for person_id in ids},
        files={person_id: _make_files(rng) for person_id in ids},
        todos={person_id: _make_todos(rng) for person_id in ids},
    )


_PLAYLISTS = ("Morning Run", "Deep Focus", "Rainy Sunday", "Road Trip", "Dinner Party", "Late Night")
_PURPOSES = ("Pizza", "Movie tickets", "Groceries", "Taxi", "Concert", "Utilities", "Birthday gift", "Coffee")
_ALARM_LABELS = ("Wake up", "Gym", "Medication", "Water the plants", "Call home", "Trash day")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NOTES = (
    ("Gift ideas", "A wool scarf, a field guide, good coffee."),
    ("Garden plan", "Tomatoes by the wall, beans along the fence."),
    ("Books to read", "Two novels, one history of maps."),
    ("Packing list", "Passport, charger, rain jacket."),
    ("Recipe: lentil soup", "Lentils, carrots, cumin, lemon."),
    ("Meeting thoughts", "Shorter, fewer, with an agenda."),
)


def _make_library(rng: Random, music: Music) -> Library:
    song_ids = [song.id for song in music.songs]
    return Library(
        songs=tuple(rng.sample(song_ids, rng.randrange(10, 15))),
        liked=tuple(rng.sample(song_ids, rng.randrange(6, 10))),
        playlists={title: tuple(rng.sample(song_ids, rng.randrange(4, 7))) for title in rng.sample(_PLAYLISTS, 3)},
        following=tuple(rng.sample(range(1, len(music.artists) + 1), 3)),
    )


def _make_transactions(rng: Random, people: list[Person]) -> tuple[Transaction, ...]:
    made: list[Transaction] = []
    for person in people:
        for other in rng.choices(sorted(person.relationships), k=9):
            made.append(
                Transaction(
                    sender=person.id,
                    receiver=other,
                    amount=float(rng.randrange(4, 90)) + rng.choice((0.0, 0.5)),
                    description=rng.choice(_PURPOSES),
                    created_at=NOW - timedelta(days=rng.randrange(2, 170), minutes=rng.randrange(600)),
                )
            )
    return tuple(sorted(made, key=lambda one: one.created_at))


def _make_alarms(rng: Random) -> tuple[Alarm, ...]:
    times = rng.sample([f"{hour:02d}:{minute:02d}" for hour in range(5, 22) for minute in (0, 15, 30, 45)], 4)
    return tuple(
        Alarm(time, label, rng.random() < 0.6, tuple(sorted(rng.sample(_DAYS, 3), key=_DAYS.index)))
        for time, label in zip(times, rng.sample(_ALARM_LABELS, 4), strict=True)
    )


def _make_notes(rng: Random) -> tuple[tuple[str, str], ...]:
    return tuple(rng.sample(_NOTES, 3))


FOLDERS = ("documents", "downloads", "photos")
FILE_KINDS = ("pdf", "txt", "jpg", "csv")
_FILE_NAMES = ("invoice", "ticket", "manual", "letter", "receipt", "map", "report", "sketch", "list", "photo")
_PROJECTS = ("House", "Work", "Garden club", "Vacation", "Band")
_TODOS = (
    "Call the plumber",
    "Order paint",
    "Book the hall",
    "Send the minutes",
    "Fix the gate",
    "Compare quotes",
    "Return the drill",
    "Print the flyers",
    "Renew the permit",
    "Tune the guitar",
)
PRIORITIES = ("high", "medium", "low")


def _make_files(rng: Random) -> tuple[str, ...]:
    """Every folder has files of every kind."""
    paths: list[str] = []
    for folder in FOLDERS:
        names = rng.sample(_FILE_NAMES, 7)
        kinds = [*FILE_KINDS, *rng.choices(FILE_KINDS, k=len(names) - len(FILE_KINDS))]
        paths += [f"{folder}/{name}.{kind}" for name, kind in zip(names, kinds, strict=True)]
    return tuple(paths)


def _make_todos(rng: Random) -> dict[str, tuple[Todo, ...]]:
    """Every project has an open task of every priority."""
    projects: dict[str, tuple[Todo, ...]] = {}
    for project in rng.sample(_PROJECTS, 2):
        titles = rng.sample(_TODOS, 6)
        priorities = [*PRIORITIES, *rng.choices(PRIORITIES, k=len(titles) - len(PRIORITIES))]
        projects[project] = tuple(
            Todo(title, priority, completed=place >= len(PRIORITIES) and rng.random() < 0.4)
            for place, (title, priority) in enumerate(zip(titles, priorities, strict=True))
        )
    return projects
