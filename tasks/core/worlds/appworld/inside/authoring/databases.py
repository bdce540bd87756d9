"""Writes an authored world into the twelve base databases, through the package's own models."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from appworld.apps import get_all_apps
from appworld.apps.api_lib import set_local_date_and_time, set_local_random_seed, unset_local_date_and_time
from appworld.collections.models import ModelCollection
from appworld.common.datetime import DateTime

from .documents import save_documents
from .people import ACCOUNTS, Person, namesakes
from .shop import SELLERS
from .world import NOW, World

_BASE = ":memory:base"
_SONG_RATINGS = 5


@contextmanager
def frozen_at(moment: datetime) -> Iterator[None]:
    """All clocks stand at `moment`: default times of rows are the same in every run."""
    freezer = set_local_date_and_time(DateTime.fromisoformat(moment.isoformat()))
    try:
        yield
    finally:
        unset_local_date_and_time(freezer)


def save_rows(model: Any, rows: list[dict[str, Any]], quiet: bool = False) -> None:
    """Insert rows; keys that the model lacks are dropped. `quiet` skips the model's own consequences of a change."""
    known = set(model.__fields__)
    records = [model(**{key: value for key, value in row.items() if key in known}) for row in rows]
    model.save_all(records, skip_post_change=quiet)


def write_base_databases(root: Path, world: World, seed: int) -> None:
    """Write `data/base_dbs/<app>.db` (12 files) and, because its rows are one of them, `data/api_docs`."""
    collection = ModelCollection.load(
        to_db_home_path=_BASE, from_db_home_path=_BASE, load_apps=get_all_apps(), create_db=True
    )
    set_local_random_seed(seed)
    with frozen_at(NOW - timedelta(days=200)):
        _save_admin(collection.admin, world)
        _save_users(collection, world)
        _save_music(collection.spotify, world)
        _save_phone(collection.phone, world)
        _save_payments(collection.venmo, world)
        _save_notes(collection.simple_note, world)
        _save_shop(collection.amazon, world)
        _save_files(collection.file_system, world)
        _save_todos(collection.todoist, world)
        save_documents(collection.api_docs.ApiDoc, root)
    collection.save(db_home_path=str(root / "data" / "base_dbs"), format="full", app_names=get_all_apps())
    collection.close()


def _save_admin(admin: Any, world: World) -> None:
    save_rows(admin.MainUser, [_identity(person) for person in world.people])
    save_rows(admin.PaymentCard, [payment_card(person) | {"main_user_id": person.id} for person in world.people])


def _save_users(collection: Any, world: World) -> None:
    for app in ACCOUNTS:
        save_rows(collection[app].User, [_account(person, app) for person in world.people])


def _identity(person: Person) -> dict[str, Any]:
    names = ("first_name", "last_name", "email", "phone_number", "birthday", "sex")
    return {name: getattr(person, name) for name in names}


def _account(person: Person, app: str) -> dict[str, Any]:
    return _identity(person) | {"password": person.passwords[app], "verified": True, "venmo_balance": 900.0}


def payment_card(person: Person) -> dict[str, Any]:
    """The person's one payment card, as every app stores it."""
    return {
        "owner_name": person.name,
        "card_name": "Visa",
        "card_number": person.card_number,
        "expiry_year": NOW.year + 3,
        "expiry_month": person.id % 12 + 1,
        "cvv_number": person.cvv_number,
        "balance": 5000.0,
    }


def _save_music(spotify: Any, world: World) -> None:
    music = world.music
    save_rows(spotify.Artist, [{"name": name, "genre": genre} for name, genre in music.artists])
    first_songs = {song.album_id: song for song in reversed(music.songs)}
    save_rows(
        spotify.Album,
        [
            {
                "title": title,
                "artist_ids": [first_songs[number].artist_id],
                "release_date": datetime(first_songs[number].year, first_songs[number].month, 1),
                "genre": first_songs[number].genre,
                "rating": 3.5,
            }
            for number, title in enumerate(music.albums, start=1)
        ],
    )
    save_rows(
        spotify.Song,
        [
            {
                "title": song.title,
                "artist_ids": [song.artist_id],
                "album_id": song.album_id,
                "duration": song.duration,
                "release_date": datetime(song.year, song.month, 1),
                "genre": song.genre,
                "play_count": song.play_count,
                "like_count": song.like_count,
                "rating": 1.0 + song.id % (_SONG_RATINGS - 1),
            }
            for song in music.songs
        ],
    )
    _save_libraries(spotify, world)


def _save_libraries(spotify: Any, world: World) -> None:
    def pairs(field: str, other: str) -> list[dict[str, Any]]:
        return [
            {"user_id": person_id, other: value}
            for person_id, library in world.libraries.items()
            for value in getattr(library, field)
        ]

    save_rows(spotify.UserLibrarySong, pairs("songs", "song_id"), quiet=True)
    save_rows(spotify.SongLike, pairs("liked", "song_id"), quiet=True)
    save_rows(spotify.UserArtistFollowing, pairs("following", "artist_id"), quiet=True)
    playlists = [
        (person_id, title, songs)
        for person_id, library in world.libraries.items()
        for title, songs in library.playlists.items()
    ]
    save_rows(
        spotify.Playlist, [{"user_id": person_id, "title": title} for person_id, title, _ in playlists], quiet=True
    )
    save_rows(
        spotify.PlaylistSong,
        [
            {"playlist_id": number, "song_id": song_id}
            for number, (_, _, songs) in enumerate(playlists, start=1)
            for song_id in songs
        ],
        quiet=True,
    )
    save_rows(spotify.MusicPlayer, [{"user_id": person.id} for person in world.people], quiet=True)


def _save_phone(phone: Any, world: World) -> None:
    people = list(world.people)
    strangers = [one | {"user_id": person.id} for person in people for one in namesakes(person, people)]
    save_rows(phone.Contact, strangers)
    save_rows(
        phone.Contact,
        [
            _identity(world.person(other))
            | {"user_id": person.id, "relationships": list(names), "home_address": _address(world.person(other))}
            for person in world.people
            for other, names in person.relationships.items()
        ],
    )
    save_rows(
        phone.Alarm,
        [
            {
                "user_id": person_id,
                "time": alarm.time,
                "label": alarm.label,
                "enabled": alarm.enabled,
                "repeat_days": list(alarm.repeat_days),
                "snooze_minutes": 5,
            }
            for person_id, alarms in world.alarms.items()
            for alarm in alarms
        ],
    )


def _address(person: Person) -> str:
    return f"{person.street_address}, {person.city}, {person.state} {person.zip_code}"


def _save_payments(venmo: Any, world: World) -> None:
    friends = [(person.id, other) for person in world.people for other in sorted(person.relationships)]
    save_rows(venmo.Friendship, [{"user_id": one, "friend_id": other} for one, other in friends], quiet=True)
    save_rows(venmo.PaymentCard, [payment_card(person) | {"user_id": person.id} for person in world.people])
    save_rows(
        venmo.Transaction,
        [
            {
                "sender_id": one.sender,
                "receiver_id": one.receiver,
                "amount": one.amount,
                "description": one.description,
                "created_at": one.created_at,
                "updated_at": one.created_at,
            }
            for one in world.transactions
        ],
        quiet=True,
    )


def _save_notes(simple_note: Any, world: World) -> None:
    save_rows(
        simple_note.Note,
        [
            {"user_id": person_id, "title": title, "content": content, "pinned": False}
            for person_id, notes in world.notes.items()
            for title, content in notes
        ],
    )


def _save_shop(amazon: Any, world: World) -> None:
    save_rows(amazon.Seller, [{"name": name, "rating": 4.0} for name in SELLERS])
    save_rows(
        amazon.Product,
        [
            {
                "product_type": product.product_type,
                "name": product.name,
                "description": f"A {product.product_type} by {product.name.split()[0]}.",
                "seller_id": product.seller_id,
                "price": product.price,
                "delivery_days": product.delivery_days,
                "inventory_quantity": 50,
                "weight": 1.0,
                "length": 10.0,
                "width": 6.0,
                "height": 4.0,
                "rating": product.rating,
                "seller_rating": 4.0,
            }
            for product in world.products
        ],
        quiet=True,
    )
    save_rows(amazon.PaymentCard, [payment_card(person) | {"user_id": person.id} for person in world.people])
    save_rows(
        amazon.Address,
        [
            {
                "user_id": person.id,
                "name": "Home",
                "street_address": person.street_address,
                "city": person.city,
                "state": person.state,
                "country": "United States",
                "zip_code": person.zip_code,
            }
            for person in world.people
        ],
    )


def _save_files(file_system: Any, world: World) -> None:
    folders: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    for person in world.people:
        home = f"/home/{person.first_name.lower()}/"
        names = sorted({path.partition("/")[0] for path in world.files[person.id]})
        folders += [
            {"user_id": person.id, "path": path}
            for path in ("/", "/home/", home, *(f"{home}{name}/" for name in names))
        ]
        files += [
            {"user_id": person.id, "path": home + path, "content": content}
            for path, content in world.files[person.id].items()
        ]
    save_rows(file_system.Directory, folders)
    save_rows(file_system.File, files)


def _save_todos(todoist: Any, world: World) -> None:
    owned = [(person_id, name, todos) for person_id, all_ in world.todos.items() for name, todos in all_.items()]
    save_rows(todoist.Project, [{"user_id": person_id, "name": name} for person_id, name, _ in owned])
    links = [{"project_id": number, "user_id": one[0]} for number, one in enumerate(owned, start=1)]
    save_rows(todoist.ProjectCollaboratorLink, links)
    tasks = [
        {
            "project_id": number,
            "user_id": person_id,
            "title": todo.title,
            "priority": todo.priority,
            "is_completed": todo.completed,
            "order_index": place,
        }
        for number, (person_id, _, todos) in enumerate(owned, start=1)
        for place, todo in enumerate(todos)
    ]
    save_rows(todoist.Task, tasks)
