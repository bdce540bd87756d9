"""The music catalogue of an authored world. Pure; no database."""

from dataclasses import dataclass
from random import Random

from .words import ARTISTS, GENRES, SHARES, SONGS, Share, pool

_ALBUMS_PER_ARTIST = 2
_ARTISTS_PER_SHARE = 6
_SONGS_PER_ALBUM = 4


@dataclass(frozen=True)
class Song:
    """One song; `id` is its id in the database."""

    id: int
    title: str
    artist_id: int
    album_id: int
    duration: int
    year: int
    month: int
    genre: str
    play_count: int
    like_count: int

    @property
    def released(self) -> str:
        """The year and month of its release, as `2014-08`."""
        return f"{self.year}-{self.month:02d}"


@dataclass(frozen=True)
class Music:
    """The catalogue: names and genres of artists by id - 1, titles of albums by id - 1, songs by id - 1."""

    artists: tuple[tuple[str, str], ...]
    albums: tuple[str, ...]
    songs: tuple[Song, ...]

    def song(self, song_id: int) -> Song:
        return self.songs[song_id - 1]

    def artist(self, song: Song) -> str:
        """The name of a song's artist."""
        return self.artists[song.artist_id - 1][0]

    def part(self, share: Share) -> tuple[Song, ...]:
        """The songs whose titles and artists belong to a share."""
        size = len(self.songs) // len(SHARES)
        return self.songs[SHARES.index(share) * size :][:size]


def make_music(rng: Random) -> Music:
    """48 songs per share; titles, counts and durations all differ, so that no question has two answers."""
    names = [name for share in SHARES for name in rng.sample(pool(ARTISTS, share), _ARTISTS_PER_SHARE)]
    artists = tuple((name, GENRES[index % len(GENRES)]) for index, name in enumerate(names))
    titles = [title for share in SHARES for title in _titles(rng, share)]
    play_counts, like_counts = rng.sample(range(100, 9000), len(titles)), rng.sample(range(10, 900), len(titles))
    durations = rng.sample(range(120, 420), len(titles))
    months = [divmod(rng.randrange(2000 * 12, 2023 * 12), 12) for _ in range(len(titles) // _SONGS_PER_ALBUM)]
    songs = tuple(
        Song(
            id=index + 1,
            title=title,
            artist_id=index // (_SONGS_PER_ALBUM * _ALBUMS_PER_ARTIST) + 1,
            album_id=index // _SONGS_PER_ALBUM + 1,
            duration=durations[index],
            year=months[index // _SONGS_PER_ALBUM][0],
            month=months[index // _SONGS_PER_ALBUM][1] + 1,
            genre=artists[index // (_SONGS_PER_ALBUM * _ALBUMS_PER_ARTIST)][1],
            play_count=play_counts[index],
            like_count=like_counts[index],
        )
        for index, title in enumerate(titles)
    )
    albums = tuple(f"{songs[place * _SONGS_PER_ALBUM].title} Sessions" for place in range(len(months)))
    return Music(artists, albums, songs)


def _titles(rng: Random, share: Share) -> list[str]:
    return rng.sample(pool(SONGS, share), _ARTISTS_PER_SHARE * _ALBUMS_PER_ARTIST * _SONGS_PER_ALBUM)
