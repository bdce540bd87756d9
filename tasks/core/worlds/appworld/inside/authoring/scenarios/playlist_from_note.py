"""Make a playlist of the songs that a note lists."""

from random import Random
from typing import Any

from ..databases import save_rows
from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 2
APPS = ("simple_note", "spotify")
VARIANTS = ({"is_public": False}, {"is_public": True})
_OCCASIONS = ("the barbecue", "the long drive", "spring cleaning", "the reunion", "a quiet evening")


def draw(rng: Random, world: World, person: Person, is_public: bool) -> Draw:
    occasion = rng.choice(_OCCASIONS)
    songs = rng.sample(world.music.songs, 4)
    note_title, title = f"Songs for {occasion}", f"Music for {occasion}"
    content = "\n".join(f"- {song.title} by {world.music.artists[song.artist_id - 1][0]}" for song in songs)

    def change(collection: Any) -> None:
        note = {"user_id": person.id, "title": note_title, "content": content, "pinned": False}
        save_rows(collection.simple_note.Note, [note])

    kind = "public" if is_public else "private"
    return Draw(
        instruction=f'Create a {kind} Spotify playlist called "{title}" with exactly the songs '
        f'listed in my Simple Note "{note_title}".',
        public={"note_title": note_title, "title": title, "is_public": is_public},
        private={"song_ids": sorted(song.id for song in songs)},
        change=change,
    )


def solution(
    apis: Any, simple_note_token: str, spotify_token: str, note_title: str, title: str, is_public: bool
) -> None:
    notes = apis.simple_note.search_notes(access_token=simple_note_token, query=note_title)
    note_id = next(note["note_id"] for note in notes if note["title"] == note_title)
    note = apis.simple_note.show_note(access_token=simple_note_token, note_id=note_id)
    # Every line reads "- <title> by <artist>".
    titles = [line[2:].rsplit(" by ", 1)[0] for line in note["content"].splitlines()]
    playlist = apis.spotify.create_playlist(access_token=spotify_token, title=title, is_public=is_public)
    for song_title in titles:
        songs = apis.spotify.search_songs(query=song_title, page_limit=20)
        song_id = next(song["song_id"] for song in songs if song["title"] == song_title)
        apis.spotify.add_song_to_playlist(
            access_token=spotify_token, playlist_id=playlist["playlist_id"], song_id=song_id
        )
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, public_data: Any, private_data: Any, main_user: Any) -> None:
    with test("assert only playlists and their songs changed."):
        test.case(models.changed_model_names(), "==", {"spotify.Playlist", "spotify.PlaylistSong"})
    added, updated, removed = models.changed_records("spotify.Playlist")
    with test("assert one playlist was added and none updated or removed."):
        test.case((len(added), len(updated), len(removed)), "==", (1, 0, 0))
    with test("assert title, privacy and owner of the playlist are as asked."):
        test.case(
            (added[0].title, added[0].is_public, added[0].user.email),
            "==",
            (public_data.title, public_data.is_public, main_user.email),
        )
    songs, updated, removed = models.changed_records("spotify.PlaylistSong")
    with test("assert the new playlist holds exactly the songs of the note, and no other playlist changed."):
        test.case({song.playlist_id for song in songs}, "==", {added[0].id})
        test.case(sorted(song.song_id for song in songs), "==", list(private_data.song_ids))
        test.case((len(updated), len(removed)), "==", (0, 0))
