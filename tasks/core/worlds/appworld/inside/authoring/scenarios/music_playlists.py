"""Templates of Spotify's playlists, two of them with Simple Note, and one that takes likes back."""

from random import Random
from typing import Any

from ..databases import save_rows
from ..paging import all_pages
from ..people import Person
from ..template import CannotDraw, Draw, Rows, Scenario, phrased
from ..words import PLAYLISTS, pool
from ..world import World
from .notes import unused_title


def fresh(rng: Random, world: World, person: Person) -> str:
    """A title that no playlist of the person has."""
    used = world.libraries[person.id].playlists
    return rng.choice([title for title in pool(PLAYLISTS, person.share) if title not in used])


class UnlikeArtist(Scenario):
    """Take the likes back from all liked songs of an artist."""

    DIFFICULTY = 2
    APPS = ("spotify",)

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        liked = [world.music.song(one) for one in world.libraries[person.id].liked]
        artist = world.music.artist(rng.choice(liked))
        songs = [song for song in liked if world.music.artist(song) == artist]
        instruction = phrased(
            rng,
            f"Unlike all songs by {artist} among my liked songs on Spotify.",
            f"On Spotify, take my likes back from every song by {artist}.",
        )
        rows = [{"id": song.id} for song in songs]  # the engine counts the likes anew
        expect = {
            "spotify.SongLike": Rows(removed=[{"song_id": song.id} for song in songs]),
            "spotify.Song": Rows(updated=rows, fields=["like_count"]),
        }
        return Draw(instruction, {"artist": artist}, expect=expect)

    @staticmethod
    def solution(apis: Any, spotify_token: str, artist: str) -> None:
        # I list the songs.
        found = all_pages(apis.spotify.show_liked_songs, access_token=spotify_token)
        print(len(found))
        # I unlike the right ones.
        for x in found:
            if x["artists"][0]["name"] == artist:
                apis.spotify.unlike_song(access_token=spotify_token, song_id=x["song_id"])
        # All is done.
        apis.supervisor.complete_task()


class PlaylistRename(Scenario):
    """Give a playlist another title."""

    DIFFICULTY = 1
    APPS = ("spotify",)

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        old, new = rng.choice(sorted(world.libraries[person.id].playlists)), fresh(rng, world, person)
        instruction = phrased(
            rng,
            f'Rename my Spotify playlist "{old}" to "{new}".',
            f'Change the title of my Spotify playlist "{old}" to "{new}".',
        )
        row = {"title": new, "user.email": person.email}
        expect = {"spotify.Playlist": Rows(updated=[row], fields=["title"])}
        return Draw(instruction, {"playlist": old, "new": new}, expect=expect)

    @staticmethod
    def solution(apis: Any, spotify_token: str, playlist: str, new: str) -> None:
        # I look for the playlist.
        found = all_pages(apis.spotify.show_playlist_library, access_token=spotify_token)
        number = next(x["playlist_id"] for x in found if x["title"] == playlist)
        print(number)
        # I rename it.
        apis.spotify.update_playlist(access_token=spotify_token, playlist_id=number, title=new)
        # All is done.
        apis.supervisor.complete_task()


class PlaylistShorten(Scenario):
    """Remove the songs from a playlist that last longer than some minutes."""

    DIFFICULTY = 2
    APPS = ("spotify",)
    VARIANTS = ({"minutes": 3}, {"minutes": 4}, {"minutes": 5})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, minutes: int) -> Draw:
        playlists = world.libraries[person.id].playlists
        title = rng.choice(sorted(playlists))
        gone = [one for one in playlists[title] if world.music.song(one).duration > 60 * minutes]
        if not gone:
            raise CannotDraw
        instruction = phrased(
            rng,
            f'Remove all songs longer than {minutes} minutes from my Spotify playlist "{title}".',
            f'Take every song out of my Spotify playlist "{title}" that lasts more than {minutes} minutes.',
        )
        expect = {"spotify.PlaylistSong": Rows(removed=[{"song_id": one} for one in gone])}
        return Draw(instruction, {"playlist": title, "minutes": minutes}, expect=expect)

    @staticmethod
    def solution(apis: Any, spotify_token: str, playlist: str, minutes: int) -> None:
        # I look for the playlist.
        found = all_pages(apis.spotify.show_playlist_library, access_token=spotify_token)
        best = next(x for x in found if x["title"] == playlist)
        print(len(best["song_ids"]))
        # I remove the right ones.
        for x in best["song_ids"]:
            if apis.spotify.show_song(song_id=x)["duration"] > minutes * 60:
                apis.spotify.remove_song_from_playlist(
                    access_token=spotify_token, playlist_id=best["playlist_id"], song_id=x
                )
        # All is done.
        apis.supervisor.complete_task()


class PlaylistOfBest(Scenario):
    """Make a playlist of the most played, or most liked, songs of the library."""

    DIFFICULTY = 3
    APPS = ("spotify",)
    VARIANTS = tuple({"measure": m, "count": n} for m in ("play_count", "like_count") for n in (3, 4, 5))

    @staticmethod
    def draw(rng: Random, world: World, person: Person, measure: str, count: int) -> Draw:
        songs = [world.music.song(song_id) for song_id in world.libraries[person.id].songs]
        best = sorted(songs, key=lambda song: -int(getattr(song, measure)))[:count]
        title = fresh(rng, world, person)
        phrase = "most played" if measure == "play_count" else "most liked"
        instruction = phrased(
            rng,
            f'Create a Spotify playlist called "{title}" with the {count} {phrase} songs of my song library.',
            f'Put the {count} {phrase} songs of my Spotify song library into a new playlist "{title}".',
        )
        expect = {
            "spotify.Playlist": Rows(added=[{"title": title, "user.email": person.email}]),
            "spotify.PlaylistSong": Rows(added=[{"song_id": song.id, "playlist.title": title} for song in best]),
        }
        return Draw(instruction, {"title": title, "measure": measure, "count": count}, expect=expect)

    @staticmethod
    def solution(apis: Any, spotify_token: str, title: str, measure: str, count: int) -> None:
        # I list the songs.
        found = all_pages(apis.spotify.show_song_library, access_token=spotify_token)
        print(len(found))
        # I look each song up.
        songs = [apis.spotify.show_song(song_id=x["song_id"]) for x in found]
        songs.sort(key=lambda x: -x[measure])
        print(songs[0]["title"])
        # I make the playlist.
        number = apis.spotify.create_playlist(access_token=spotify_token, title=title)["playlist_id"]
        print(number)
        # I add the songs.
        for x in songs[:count]:
            apis.spotify.add_song_to_playlist(access_token=spotify_token, playlist_id=number, song_id=x["song_id"])
        # All is done.
        apis.supervisor.complete_task()


class PlaylistFromNote(Scenario):
    """Make a playlist of the songs that a note lists."""

    DIFFICULTY = 3
    APPS = ("simple_note", "spotify")
    VARIANTS = ({"is_public": False}, {"is_public": True})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, is_public: bool) -> Draw:
        note_title = unused_title(rng, world, person)
        title = fresh(rng, world, person)
        songs = rng.sample(world.music.part(person.share), 4)
        content = "\n".join(f"{song.title} by {world.music.artist(song)}" for song in songs)

        def change(collection: Any) -> None:
            note = {"user_id": person.id, "title": note_title, "content": content, "pinned": False}
            save_rows(collection.simple_note.Note, [note])

        kind = "public" if is_public else "private"
        instruction = phrased(
            rng,
            f'Create a {kind} Spotify playlist called "{title}" with the songs of my Simple Note "{note_title}".',
            f'My Simple Note "{note_title}" lists songs: make a {kind} Spotify playlist "{title}" of them.',
        )
        row = {"title": title, "is_public": is_public, "user.email": person.email}
        expect = {
            "spotify.Playlist": Rows(added=[row]),
            "spotify.PlaylistSong": Rows(added=[{"song_id": song.id, "playlist.title": title} for song in songs]),
        }
        public = {"note_title": note_title, "title": title, "is_public": is_public}
        return Draw(instruction, public, expect=expect, change=change)

    @staticmethod
    def solution(
        apis: Any, simple_note_token: str, spotify_token: str, note_title: str, title: str, is_public: bool
    ) -> None:
        # I look for the note.
        found = all_pages(apis.simple_note.search_notes, access_token=simple_note_token, query=note_title)
        note = next(x for x in found if x["title"] == note_title)
        note = apis.simple_note.show_note(access_token=simple_note_token, note_id=note["note_id"])
        print(note["content"])
        # I make the playlist.
        number = apis.spotify.create_playlist(access_token=spotify_token, title=title, is_public=is_public)[
            "playlist_id"
        ]
        print(number)
        # I add the songs.
        for line in note["content"].splitlines():
            name = line.split(" by ")[0]
            found = apis.spotify.search_songs(query=name, page_limit=20)
            song = next(x for x in found if x["title"] == name)
            apis.spotify.add_song_to_playlist(access_token=spotify_token, playlist_id=number, song_id=song["song_id"])
        # All is done.
        apis.supervisor.complete_task()


class NoteFromPlaylist(Scenario):
    """Write a note of the titles of a playlist's songs."""

    DIFFICULTY = 3
    APPS = ("spotify", "simple_note")
    SHOWING = "hidden"

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        playlists = world.libraries[person.id].playlists
        playlist = rng.choice(sorted(playlists))
        title = unused_title(rng, world, person)
        content = "\n".join(sorted(world.music.song(one).title for one in playlists[playlist]))
        row = {"title": title, "content": content, "user.email": person.email}
        return Draw(
            f'Create a note in Simple Note with the title "{title}" and as content the titles of the songs in my '
            f'Spotify playlist "{playlist}", sorted by the alphabet, each on a line of its own.',
            {"playlist": playlist, "title": title},
            expect={"simple_note.Note": Rows(added=[row])},
        )

    @staticmethod
    def solution(apis: Any, spotify_token: str, simple_note_token: str, playlist: str, title: str) -> None:
        # I look for the playlist.
        found = all_pages(apis.spotify.show_playlist_library, access_token=spotify_token)
        ids = next(x["song_ids"] for x in found if x["title"] == playlist)
        print(len(ids))
        # I look each song up.
        content = "\n".join(sorted(apis.spotify.show_song(song_id=x)["title"] for x in ids))
        print(content)
        # I write the note.
        apis.simple_note.create_note(access_token=simple_note_token, title=title, content=content)
        # All is done.
        apis.supervisor.complete_task()
