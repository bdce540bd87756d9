"""Like all songs of one genre in a playlist."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 2
APPS = ("spotify",)
VARIANTS = ({"place": "playlist"}, {"place": "library"})


def draw(rng: Random, world: World, person: Person, place: str) -> Draw:
    library = world.libraries[person.id]
    title = rng.choice(sorted(library.playlists))
    song_ids = library.playlists[title] if place == "playlist" else library.songs
    fresh = [song_id for song_id in song_ids if song_id not in library.liked]
    genre = rng.choice(sorted({world.music.song(song_id).genre for song_id in fresh}))
    wanted = sorted(song_id for song_id in fresh if world.music.song(song_id).genre == genre)
    source = f'my Spotify playlist "{title}"' if place == "playlist" else "my Spotify song library"
    public = {"genre": genre, "playlist_title": title if place == "playlist" else None}
    return Draw(f"Like all {genre} songs in {source}.", public, {"song_ids": wanted})


def solution(apis: Any, spotify_token: str, genre: str, playlist_title: str | None) -> None:
    if playlist_title is None:
        song_ids = [one["song_id"] for one in all_pages(apis.spotify.show_song_library, access_token=spotify_token)]
    else:
        playlists = all_pages(apis.spotify.show_playlist_library, access_token=spotify_token)
        song_ids = next(one["song_ids"] for one in playlists if one["title"] == playlist_title)
    # Liking a liked song again is an error.
    liked = {one["song_id"] for one in all_pages(apis.spotify.show_liked_songs, access_token=spotify_token)}
    for song_id in song_ids:
        if song_id not in liked and apis.spotify.show_song(song_id=song_id)["genre"] == genre:
            apis.spotify.like_song(access_token=spotify_token, song_id=song_id)
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only likes and the songs' like counts changed."):
        test.case(models.changed_model_names(), "==", {"spotify.SongLike", "spotify.Song"})
    added, updated, removed = models.changed_records("spotify.SongLike")
    with test("assert of songs nothing changed but the like counts of those that were liked."):
        more, counted, fewer = models.changed_records("spotify.Song")
        test.case((len(more), len(fewer)), "==", (0, 0))
        test.case(sorted(one.id for one in counted), "==", sorted(like.song_id for like in added))
        fields = [models.changed_field_names("spotify.Song", one.id) for one in counted]
        test.case(set().union(*fields), "==", {"like_count"})
    with test("assert no like was updated or taken back."):
        test.case((len(updated), len(removed)), "==", (0, 0))
    with test("assert exactly the songs asked for were liked by the supervisor."):
        test.case(sorted(like.song_id for like in added), "==", list(private_data.song_ids))
        test.case({like.user.email for like in added}, "==", {main_user.email})
