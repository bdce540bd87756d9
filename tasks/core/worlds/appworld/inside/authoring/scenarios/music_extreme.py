"""A question: which song of my library or playlists is the most played, the longest, ..."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 1
APPS = ("spotify",)
_MEASURES = {
    "play_count": ("most played", "least played"),
    "like_count": ("most liked", "least liked"),
    "duration": ("longest", "shortest"),
}
VARIANTS = tuple(
    {"measure": measure, "largest": largest, "place": place}
    for measure in _MEASURES
    for largest in (True, False)
    for place in ("song library", "liked songs")
)


def draw(rng: Random, world: World, person: Person, measure: str, largest: bool, place: str) -> Draw:
    library = world.libraries[person.id]
    songs = [world.music.song(song_id) for song_id in (library.songs if place == "song library" else library.liked)]
    best = (max if largest else min)(songs, key=lambda song: getattr(song, measure))
    phrase = _MEASURES[measure][0 if largest else 1]
    return Draw(
        instruction=f"What is the title of the {phrase} song in my Spotify {place}?",
        public={"measure": measure, "largest": largest, "place": place},
        answer=best.title,
    )


def solution(apis: Any, spotify_token: str, measure: str, largest: bool, place: str) -> None:
    list_songs = apis.spotify.show_song_library if place == "song library" else apis.spotify.show_liked_songs
    song_ids = [song["song_id"] for song in all_pages(list_songs, access_token=spotify_token)]
    # The lists hold no counts, so look every song up.
    songs = [apis.spotify.show_song(song_id=song_id) for song_id in song_ids]
    songs.sort(key=lambda song: song[measure], reverse=largest)
    apis.supervisor.complete_task(answer=songs[0]["title"])


def evaluate(test: Any, models: Any) -> None:
    with test("assert nothing but the answer changed."):
        test.case(models.changed_model_names(), "==", set())
