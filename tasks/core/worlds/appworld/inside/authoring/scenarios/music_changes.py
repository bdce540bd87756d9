"""Templates of Spotify that add likes, songs of the library and artists to follow."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import CannotDraw, Draw, Rows, Scenario, phrased
from ..words import GENRES, numbers
from ..world import World


class LikeGenre(Scenario):
    """Like all songs of one genre in a playlist."""

    DIFFICULTY = 2
    APPS = ("spotify",)
    VARIANTS = tuple({"genre": genre} for genre in GENRES)

    @staticmethod
    def draw(rng: Random, world: World, person: Person, genre: str) -> Draw:
        library = world.libraries[person.id]
        fitting = {
            title: [one for one in ids if world.music.song(one).genre == genre and one not in library.liked]
            for title, ids in library.playlists.items()
        }
        titles = sorted(title for title, ids in fitting.items() if ids)
        if not titles:
            raise CannotDraw
        title = rng.choice(titles)
        instruction = phrased(
            rng,
            f'Like all {genre} songs in my Spotify playlist "{title}".',
            f'Give a like to every {genre} song of my Spotify playlist "{title}".',
        )
        likes = [{"song_id": one, "user.email": person.email} for one in fitting[title]]
        songs = [{"id": one} for one in fitting[title]]  # the engine counts the likes anew
        expect = {
            "spotify.SongLike": Rows(added=likes),
            "spotify.Song": Rows(updated=songs, fields=["like_count"]),
        }
        return Draw(instruction, {"genre": genre, "playlist": title}, expect=expect)

    @staticmethod
    def solution(apis: Any, spotify_token: str, genre: str, playlist: str) -> None:
        # I look for the playlist.
        found = all_pages(apis.spotify.show_playlist_library, access_token=spotify_token)
        ids = next(x["song_ids"] for x in found if x["title"] == playlist)
        print(len(ids))
        # I must not like a song twice.
        found = all_pages(apis.spotify.show_liked_songs, access_token=spotify_token)
        liked = [x["song_id"] for x in found]
        print(len(liked))
        # I like the right ones.
        for x in ids:
            if x not in liked and apis.spotify.show_song(song_id=x)["genre"] == genre:
                apis.spotify.like_song(access_token=spotify_token, song_id=x)
        # All is done.
        apis.supervisor.complete_task()


class FollowArtists(Scenario):
    """Follow all artists of one's liked songs that came out before, or since, a month."""

    DIFFICULTY = 3
    APPS = ("spotify",)
    VARIANTS = ({"before": True}, {"before": False})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, before: bool) -> Draw:
        library = world.libraries[person.id]
        songs = [world.music.song(song_id) for song_id in library.liked]
        year, month = numbers(rng, range(2002, 2022), range(1, 13), person.share)
        date = f"{year}-{month:02d}"
        fitting = {song.artist_id for song in songs if (song.released < date) == before} - set(library.following)
        if not fitting:
            raise CannotDraw
        phrase = f"before {date}" if before else f"in {date} or later"
        instruction = phrased(
            rng,
            f"On Spotify, follow all artists who have a song among my liked songs that was released {phrase}.",
            f"Follow the artists of all songs that I liked on Spotify and that were released {phrase}.",
        )
        rows = [{"artist_id": one, "user.email": person.email} for one in sorted(fitting)]
        expect = {"spotify.UserArtistFollowing": Rows(added=rows)}
        return Draw(instruction, {"before": before, "date": date}, expect=expect)

    @staticmethod
    def solution(apis: Any, spotify_token: str, before: bool, date: str) -> None:
        # I list the songs.
        songs = all_pages(apis.spotify.show_liked_songs, access_token=spotify_token)
        print(len(songs))
        # I list whom I follow.
        found = all_pages(apis.spotify.show_following_artists, access_token=spotify_token)
        followed = [x["artist_id"] for x in found]
        print(len(followed))
        # I follow the others.
        for song in songs:
            artist = song["artists"][0]["id"]
            released = apis.spotify.show_song(song_id=song["song_id"])["release_date"]
            if (released < date if before else released >= date) and artist not in followed:
                apis.spotify.follow_artist(access_token=spotify_token, artist_id=artist)
                followed.append(artist)
        # All is done.
        apis.supervisor.complete_task()


class LibraryFromPlaylist(Scenario):
    """Add the songs of a playlist to the library that are not in it."""

    DIFFICULTY = 2
    APPS = ("spotify",)

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        library = world.libraries[person.id]
        title = rng.choice(sorted(library.playlists))
        new = [one for one in library.playlists[title] if one not in library.songs]
        if not new:
            raise CannotDraw
        instruction = phrased(
            rng,
            f'Add all songs of my Spotify playlist "{title}" to my song library, unless they are in it.',
            f'Make sure that every song of my Spotify playlist "{title}" is in my song library.',
        )
        rows = [{"song_id": one, "user.email": person.email} for one in new]
        return Draw(instruction, {"playlist": title}, expect={"spotify.UserLibrarySong": Rows(added=rows)})

    @staticmethod
    def solution(apis: Any, spotify_token: str, playlist: str) -> None:
        # I look for the playlist.
        found = all_pages(apis.spotify.show_playlist_library, access_token=spotify_token)
        ids = next(x["song_ids"] for x in found if x["title"] == playlist)
        print(len(ids))
        # I list the songs.
        found = all_pages(apis.spotify.show_song_library, access_token=spotify_token)
        known = [x["song_id"] for x in found]
        print(len(known))
        # I add the others.
        for x in ids:
            if x not in known:
                apis.spotify.add_song_to_library(access_token=spotify_token, song_id=x)
        # All is done.
        apis.supervisor.complete_task()
