"""Follow all artists of one's liked songs that came out before, or since, a year."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 3
APPS = ("spotify",)
VARIANTS = ({"side": "before"}, {"side": "since"})


def draw(rng: Random, world: World, person: Person, side: str) -> Draw:
    library = world.libraries[person.id]
    songs = [world.music.song(song_id) for song_id in library.liked]
    years = sorted({song.year for song in songs})
    fitting: set[int] = set()
    while not fitting - set(library.following):
        year = rng.choice(range(years[0], years[-1] + 2))
        fitting = {song.artist_id for song in songs if (song.year < year) == (side == "before")}
    phrase = f"before {year}" if side == "before" else f"in {year} or later"
    return Draw(
        f"On Spotify, follow all artists who have a song among my liked songs that was released {phrase}.",
        {"side": side, "year": year},
        {"artist_ids": sorted(fitting - set(library.following))},
    )


def solution(apis: Any, spotify_token: str, side: str, year: int) -> None:
    liked = all_pages(apis.spotify.show_liked_songs, access_token=spotify_token)
    following = all_pages(apis.spotify.show_following_artists, access_token=spotify_token)
    followed = {artist["artist_id"] for artist in following}
    for liked_song in liked:
        song = apis.spotify.show_song(song_id=liked_song["song_id"])
        released = int(song["release_date"][:4])
        if (released < year) != (side == "before"):
            continue
        for artist in song["artists"]:
            if artist["id"] not in followed:
                apis.spotify.follow_artist(access_token=spotify_token, artist_id=artist["id"])
                followed.add(artist["id"])
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only followed artists changed."):
        test.case(models.changed_model_names(), "==", {"spotify.UserArtistFollowing"})
    added, updated, removed = models.changed_records("spotify.UserArtistFollowing")
    with test("assert nobody was unfollowed."):
        test.case((len(updated), len(removed)), "==", (0, 0))
    with test("assert the supervisor follows exactly the artists asked for in addition."):
        test.case(sorted(one.artist_id for one in added), "==", list(private_data.artist_ids))
        test.case({one.user.email for one in added}, "==", {main_user.email})
