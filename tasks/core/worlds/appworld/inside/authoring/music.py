"""The music catalogue of an authored world. Pure; no database."""

from dataclasses import dataclass
from random import Random

GENRES = ("jazz", "folk", "rock", "classical", "electronic", "soul")
_ADJECTIVES = (
    "Amber",
    "Broken",
    "Crystal",
    "Distant",
    "Electric",
    "Fading",
    "Golden",
    "Hidden",
    "Lonely",
    "Silent",
    "Velvet",
    "Wild",
)
_NOUNS = ("Harbor", "Mirror", "River", "Lantern", "Garden", "Horizon", "Winter", "Shadow")
_ARTISTS = (
    "Paper Comets",
    "Nora Vale",
    "The Tin Orchard",
    "Sable & Finch",
    "Iron Meadow",
    "Otto Lark",
    "Blue Cartography",
    "Mirea Stone",
    "Low Tide Choir",
    "The Quiet Engines",
    "Juno Park",
    "Cobalt Fields",
)
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
    genre: str
    play_count: int
    like_count: int


@dataclass(frozen=True)
class Music:
    """The catalogue: names and genres of artists by id - 1, titles of albums by id - 1, songs by id - 1."""

    artists: tuple[tuple[str, str], ...]
    albums: tuple[str, ...]
    songs: tuple[Song, ...]

    def song(self, song_id: int) -> Song:
        return self.songs[song_id - 1]


def make_music(rng: Random) -> Music:
    """96 songs with different titles, play counts, like counts and durations, so that no question has two answers."""
    titles = [f"{adjective} {noun}" for adjective in _ADJECTIVES for noun in _NOUNS]
    rng.shuffle(titles)
    artists = tuple((name, GENRES[index % len(GENRES)]) for index, name in enumerate(_ARTISTS))
    play_counts, like_counts = rng.sample(range(100, 9000), len(titles)), rng.sample(range(10, 900), len(titles))
    durations = rng.sample(range(120, 420), len(titles))
    albums = len(titles) // _SONGS_PER_ALBUM
    years = [rng.randrange(2012, 2023) for _ in range(albums)]
    songs = tuple(
        Song(
            id=index + 1,
            title=title,
            artist_id=index // _SONGS_PER_ALBUM % len(artists) + 1,
            album_id=index // _SONGS_PER_ALBUM + 1,
            duration=durations[index],
            year=years[index // _SONGS_PER_ALBUM],
            genre=artists[index // _SONGS_PER_ALBUM % len(artists)][1],
            play_count=play_counts[index],
            like_count=like_counts[index],
        )
        for index, title in enumerate(titles)
    )
    return Music(artists, tuple(f"{songs[i * _SONGS_PER_ALBUM].title} Sessions" for i in range(albums)), songs)
