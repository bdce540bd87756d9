"""Templates of Spotify that ask something."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import CannotDraw, Draw, Scenario, phrased
from ..words import GENRES, numbers
from ..world import World

MEASURES = {
    "play_count": ("most played", "least played"),
    "like_count": ("most liked", "least liked"),
    "duration": ("longest", "shortest"),
}


class MusicExtreme(Scenario):
    """Which song of a playlist is the most played, the longest, ..."""

    DIFFICULTY = 1
    APPS = ("spotify",)
    VARIANTS = tuple({"measure": measure, "largest": largest} for measure in MEASURES for largest in (True, False))

    @staticmethod
    def draw(rng: Random, world: World, person: Person, measure: str, largest: bool) -> Draw:
        playlists = world.libraries[person.id].playlists
        title = rng.choice(sorted(playlists))
        songs = [world.music.song(song_id) for song_id in playlists[title]]
        best = (max if largest else min)(songs, key=lambda song: int(getattr(song, measure)))
        phrase = MEASURES[measure][0 if largest else 1]
        instruction = phrased(
            rng,
            f'What is the title of the {phrase} song in my Spotify playlist "{title}"?',
            f'Name the {phrase} song of my Spotify playlist "{title}".',
        )
        return Draw(instruction, {"playlist": title, "measure": measure, "largest": largest}, best.title)

    @staticmethod
    def solution(apis: Any, spotify_token: str, playlist: str, measure: str, largest: bool) -> None:
        # I look for the playlist.
        found = all_pages(apis.spotify.show_playlist_library, access_token=spotify_token)
        ids = next(x["song_ids"] for x in found if x["title"] == playlist)
        print(len(ids))
        # I look each song up.
        songs = [apis.spotify.show_song(song_id=x) for x in ids]
        best = (max if largest else min)(songs, key=lambda x: x[measure])
        print(best["title"])
        # That is the answer.
        apis.supervisor.complete_task(answer=best["title"])


class GenreCount(Scenario):
    """How many songs of a genre, since a month, are in the library."""

    DIFFICULTY = 1
    APPS = ("spotify",)
    VARIANTS = tuple({"genre": genre} for genre in GENRES)

    @staticmethod
    def draw(rng: Random, world: World, person: Person, genre: str) -> Draw:
        songs = [world.music.song(song_id) for song_id in world.libraries[person.id].songs]
        year, month = numbers(rng, range(2001, 2021), range(1, 13), person.share)
        since = f"{year}-{month:02d}"
        count = sum(song.genre == genre and song.released >= since for song in songs)
        instruction = phrased(
            rng,
            f"How many {genre} songs released in {since} or later are in my Spotify song library?",
            f"Count the {genre} songs of my Spotify song library that were released in {since} or later.",
        )
        return Draw(instruction, {"genre": genre, "since": since}, count)

    @staticmethod
    def solution(apis: Any, spotify_token: str, genre: str, since: str) -> None:
        # I list the songs.
        found = all_pages(apis.spotify.show_song_library, access_token=spotify_token)
        print(len(found))
        # I look each song up.
        songs = [apis.spotify.show_song(song_id=x["song_id"]) for x in found]
        total = len([x for x in songs if x["genre"] == genre and x["release_date"] >= since])
        print(total)
        # That is the answer.
        apis.supervisor.complete_task(answer=total)


class PlaylistMinutes(Scenario):
    """How many songs of a playlist are longer than some minutes."""

    DIFFICULTY = 2
    APPS = ("spotify",)
    VARIANTS = ({"minutes": 3}, {"minutes": 4}, {"minutes": 5})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, minutes: int) -> Draw:
        playlists = world.libraries[person.id].playlists
        title = rng.choice(sorted(playlists))
        count = sum(world.music.song(song_id).duration > 60 * minutes for song_id in playlists[title])
        instruction = phrased(
            rng,
            f'How many songs in my Spotify playlist "{title}" are longer than {minutes} minutes?',
            f'Count the songs of my Spotify playlist "{title}" that last more than {minutes} minutes.',
        )
        return Draw(instruction, {"playlist": title, "minutes": minutes}, count)

    @staticmethod
    def solution(apis: Any, spotify_token: str, playlist: str, minutes: int) -> None:
        # I look for the playlist.
        found = all_pages(apis.spotify.show_playlist_library, access_token=spotify_token)
        ids = next(x["song_ids"] for x in found if x["title"] == playlist)
        print(len(ids))
        # I look each song up.
        songs = [apis.spotify.show_song(song_id=x) for x in ids]
        total = len([x for x in songs if x["duration"] > minutes * 60])
        print(total)
        # That is the answer.
        apis.supervisor.complete_task(answer=total)


class ArtistOfSong(Scenario):
    """Which artist, album or genre a song of the liked songs has."""

    DIFFICULTY = 1
    APPS = ("spotify",)
    VARIANTS = ({"asked": "artist"}, {"asked": "album_title"}, {"asked": "genre"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, asked: str) -> Draw:
        song = world.music.song(rng.choice(world.libraries[person.id].liked))
        answers = {
            "artist": world.music.artist(song),
            "album_title": world.music.albums[song.album_id - 1],
            "genre": song.genre,
        }
        what = {"artist": "the name of the artist", "album_title": "the title of the album", "genre": "the genre"}
        instruction = phrased(
            rng,
            f'What is {what[asked]} of the song "{song.title}" on Spotify?',
            f'Tell me {what[asked]} of "{song.title}" on Spotify.',
        )
        return Draw(instruction, {"song": song.title, "asked": asked}, answers[asked])

    @staticmethod
    def solution(apis: Any, spotify_token: str, song: str, asked: str) -> None:
        # I look for the song.
        found = apis.spotify.search_songs(query=song, page_limit=20)
        best = next(x for x in found if x["title"] == song)
        if asked == "album_title":
            answer = apis.spotify.show_album(album_id=best["album_id"])["title"]
        else:
            answer = best["artists"][0]["name"] if asked == "artist" else best["genre"]
        print(answer)
        # That is the answer.
        apis.supervisor.complete_task(answer=answer)


class ArtistCount(Scenario):
    """How many of the liked songs are by an artist."""

    DIFFICULTY = 1
    APPS = ("spotify",)
    VARIANTS = ({"place": "liked songs"}, {"place": "song library"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, place: str) -> Draw:
        library = world.libraries[person.id]
        songs = [world.music.song(one) for one in (library.liked if place == "liked songs" else library.songs)]
        if not songs:
            raise CannotDraw
        artist = world.music.artist(rng.choice(songs))
        count = sum(world.music.artist(song) == artist for song in songs)
        instruction = phrased(
            rng,
            f"How many songs by {artist} are in my Spotify {place}?",
            f"Count the songs in my Spotify {place} that are by {artist}.",
        )
        return Draw(instruction, {"artist": artist, "place": place}, count)

    @staticmethod
    def solution(apis: Any, spotify_token: str, artist: str, place: str) -> None:
        # I list the songs.
        if place == "liked songs":
            found = all_pages(apis.spotify.show_liked_songs, access_token=spotify_token)
        else:
            found = all_pages(apis.spotify.show_song_library, access_token=spotify_token)
        print(len(found))
        # I count those that fit.
        total = len([x for x in found if x["artists"][0]["name"] == artist])
        print(total)
        # That is the answer.
        apis.supervisor.complete_task(answer=total)
