"""The words of an authored world, in shares: what names a task's entities in one split is never used by another.

Every name has two parts, and the PAIRS are shared out: three fifths for training (and demonstrations), a fifth for dev,
a fifth for both tests. Each part occurs in every share, with other partners: a policy that solves a task of dev has to
copy the name, from parts that it knows. So no instruction of dev or of a test can stand in a demonstration or among the
training tasks. No second part is a first part too, since the policy's tokenizer tells them apart. Pure; no database.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Share = Literal["train", "dev", "tests"]
SHARES: tuple[Share, ...] = ("train", "dev", "tests")
_OF_REMAINDER: tuple[Share, ...] = ("train", "train", "train", "dev", "tests")


@dataclass(frozen=True)
class PairedNames:
    """Names of two parts, all pairs of which exist; a second part is in no other list."""

    firsts: tuple[str, ...]
    """Each with the blank or the hyphen that follows it."""
    seconds: tuple[str, ...]

    def share(self, first: str, second: str) -> Share:
        """Return the share that a name belongs to."""
        return share_of_numbers(self.firsts.index(first), self.seconds.index(second))


def _paired(firsts: str, seconds: str, joint: str = " ") -> PairedNames:
    return PairedNames(tuple(part + joint for part in _split(firsts)), _split(seconds))


def _split(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


FIRST_NAMES = _paired(
    "Anna, Jean, Karl, Mary, Lise, Otto, Rosa, Hans, Eva, Juan, Nils, Ada, Paul, Ines, Tom, Vera, Max, Lena, Ole, "
    "Mina, Sven, Dora, Lars, Kaya",
    "Amara, Boris, Celia, Dmitri, Elena, Farid, Greta, Hugo, Ingrid, Jonas, Keiko, Luis, Maren, Nadia, Oskar, "
    "Priya, Quentin, Samir, Talia, Ulrich, Wendell, Ximena, Yusuf, Zelda",
    "-",
)
LAST_NAMES = _split(
    "Abbott, Brandt, Castell, Dorsey, Ekholm, Fontana, Grayson, Hollis, Ibarra, Jansen, Kowal, Lindner, Mercado, "
    "Novak, Oakley, Pereira, Quist, Rossi, Sandoval, Thorne, Ulman, Vasquez, Whitaker, Yamada",
)
"""Common to all shares: the first names tell people apart."""
ALARMS = _paired(
    "Early, Late, Weekday, Daily, Monday, Tuesday, Friday, Second, Short, Long, Morning, Evening, Noon, Home, "
    "Office, Winter",
    "Gym, Medication, Trash, Yoga, Laundry, Stretch, Swim, Choir, Vitamins, Bedtime, Prayer, Standup, Recycling, "
    "Nap, Rehearsal, Breakfast",
)
PLAYLISTS = _paired(
    "Deep, Rainy, Slow, Summer, First, Quiet, City, Lazy, Power, Blue, Gold, Night, Harbor, Attic, Spring, Warm",
    "Focus, Sunday, Dance, Porch, Snow, Radio, Flight, Hours, Drive, Lights, Campfire, Brunch, Mood, Sunrise, "
    "Harvest, Tapes",
)
PURPOSES = _paired(
    "Half, Shared, Last, Office, Birthday, Monthly, Family, Holiday, School, Airport, Team, Cheap, Extra, Friday, "
    "Club, Garden",
    "Pizza, Groceries, Taxi, Concert, Utilities, Coffee, Lunch, Parking, Flowers, Rent, Snacks, Firewood, Fuel, "
    "Bakery, Haircut, Bowling",
)
TITLES = _paired(
    "Old, Gift, Camping, Kitchen, Bike, Winter, Sailing, Baby, Chess, Cabin, Wedding, Market, Roof, Garden, Train, "
    "Pond",
    "Ideas, Packing, Thoughts, Checklist, Colours, Rules, Repair, Quotes, Openings, Setup, Tyres, Knots, Settings, "
    "Debts, Sketches, Recipes",
)
SENTENCES = _paired(
    "Please call me, Bring the folder, Check the price, Leave the door open, Write to the landlord, "
    "Look for the key, Dinner is served, Buy fresh mint, Turn the valve, Count the chairs, Wait for the bell, "
    "Feed the fish, Send the photos, Rinse the rice, Return the ladder, Order more paper",
    "before noon., on Sunday., after work., by the lake., at seven., every week., once more., without me., in the "
    "shade., behind the barn., until Monday., near the station., with Grandma., this evening., under the pot., for "
    "everybody.",
)
PROJECTS = _paired(
    "House, Autumn, Book, Music, Street, Village, Youth, River, Open, Green, North, Little, Grand, Museum, "
    "Charity, Harbor",
    "Renovation, Bookshop, Marathon, Orchard, Podcast, Nursery, Startup, Theatre, Allotment, Workshop, Reunion, "
    "Fundraiser, Archive, Festival, Gallery, Newsletter",
)
TODOS = _paired(
    "Call about the, Order a new, Fix the, Return the, Print the, Clean the, Paint the, Sell the, Measure the, "
    "Find the, Insure the, Move the, Sketch the, Borrow a, Photograph the, Replace the",
    "plumbing, hall, gate, drill, flyers, permit, guitar, jars, tent, roses, hinge, van, speech, knives, shelf, filter",
)
GROUPS = _paired(
    "Lake, Flat, Garage, Ski, Supper, Boat, Trail, Pottery, Rowing, Beach, Quiz, Camp, Tennis, Wine, Market, Surf",
    "Crew, Mates, Trip, Nights, Fund, Pair, Stall, Tour, Party, Ring, Circle, Union, Squad, League, Society, Bunch",
)
PRODUCTS = _paired(
    "small, folding, steel, wooden, silent, garden, striped, heavy, light, woollen, glass, round, foldable, "
    "vintage, plain, tiny",
    "backpack, lamp, bottle, headphones, umbrella, kettle, raincoat, tripod, blanket, wallet, thermos, hammock, "
    "lantern, teapot, scarf, stapler",
)
FOLDERS = _paired(
    "old, new, my, shared, work, home, desk, spare, main, second, summer, winter, city, club, house, draft",
    "documents, downloads, photos, taxes, lessons, travel, invoices, letters, scans, videos, maps, contracts, "
    "backups, designs, receipts, slides",
    "-",
)
FILE_NAMES = _paired(
    "first, signed, final, rough, long, short, blue, green, early, late, yearly, weekly, public, printed, lost, good",
    "ticket, manual, sketch, poster, menu, recipe, outline, agenda, diagram, survey, resume, flyer, diary, lease, "
    "badge, warranty",
    "-",
)
ARTISTS = _paired(
    "Paper, Tin, Iron, Copper, Quiet, Cobalt, Hollow, Salt, Gray, Ruby, Tall, Brass, Pale, Red, Kind, Plastic",
    "Comets, Finches, Meadows, Engines, Fields, Pines, Roads, Pianos, Clerks, Foxes, Motors, Ghosts, Sofas, "
    "Whistlers, Saints, Moons",
)
SONGS = _paired(
    "Amber, Broken, Crystal, Distant, Electric, Fading, Golden, Hidden, Lonely, Silent, Velvet, Wild, Burning, "
    "Frozen, Restless, Silver",
    "Mirror, Horizon, Shadow, Feather, Bridge, Candle, Desert, Echo, Forest, Glacier, Island, Jacket, Kingdom, "
    "Needle, Ocean, Pendulum",
)
SUBJECTS = _paired(
    "Lost, Borrowed, Quick, Small, Old, New, Good, Two, Our, Missing, Next, Class, Urgent, Final, Little, Office",
    "Keys, Questions, Directions, Gloves, Copies, Favors, Weekend, Address, Phones, Seats, Feedback, Plans, "
    "Deadlines, News, Boots, Repairs",
)
PAIRED_NAMES: dict[str, PairedNames] = {
    "first names": FIRST_NAMES,
    "alarms": ALARMS,
    "playlists": PLAYLISTS,
    "purposes": PURPOSES,
    "titles": TITLES,
    "sentences": SENTENCES,
    "projects": PROJECTS,
    "todos": TODOS,
    "groups": GROUPS,
    "products": PRODUCTS,
    "folders": FOLDERS,
    "file names": FILE_NAMES,
    "artists": ARTISTS,
    "songs": SONGS,
    "subjects": SUBJECTS,
}
"""The lists that are shared out; each part of a name is one token of the embedded policy."""
GENRES = ("jazz", "folk", "rock", "classical", "electronic", "soul")
BRANDS = ("Aster", "Bramble", "Corvid", "Dune", "Everly")
RELATIONSHIPS = ("roommate", "coworker", "friend", "sibling")
FILE_KINDS = ("pdf", "txt", "jpg", "csv")
PRIORITIES = ("high", "medium", "low")


def share_of(split: str) -> Share:
    """Return the share whose names a split uses."""
    return "train" if split in ("train", "demonstrations") else "dev" if split == "dev" else "tests"


def share_of_numbers(first: int, second: int) -> Share:
    """Return the share of a pair of numbers; every number has partners in every share."""
    return _OF_REMAINDER[(first + second) % len(_OF_REMAINDER)]


def pool(names: PairedNames, share: Share) -> list[str]:
    """Return the names of a list that belong to a share."""
    return [first + second for first in names.firsts for second in names.seconds if names.share(first, second) == share]


def pick(rng: Random, names: PairedNames, share: Share) -> str:
    """Return a random name of a share."""
    return rng.choice(pool(names, share))


def numbers(rng: Random, firsts: Sequence[int], seconds: Sequence[int], share: Share) -> tuple[int, int]:
    """Return a pair of numbers of a share, for instructions that name nothing else: a year and a month, say."""
    return rng.choice(
        [(first, second) for first in firsts for second in seconds if share_of_numbers(first, second) == share]
    )


def dollars(rng: Random, low: int, high: int, share: Share) -> float:
    """Return an amount of a share with `low <= amount < high`: two digits on either side of the point."""
    cents = [value for value in range(11, 100) if value % 10]
    whole, hundredths = numbers(rng, range(low, high), cents, share)
    return float(f"{whole}.{hundredths}")
