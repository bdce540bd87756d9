"""The words of an authored world, in shares: what names a task's entities in one split is never used by another.

Every list has three shares: three fifths for training (and demonstrations), a fifth for dev, a fifth for both tests. So
no instruction of dev or of a test can stand in a demonstration or among the training tasks. Pure; no database.
"""

from collections.abc import Sequence
from random import Random
from typing import Literal

Share = Literal["train", "dev", "tests"]
SHARES: tuple[Share, ...] = ("train", "dev", "tests")
_OF_REMAINDER: tuple[Share, ...] = ("train", "train", "train", "dev", "tests")


def _split(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


FIRST_NAMES = _split(
    "Amara, Boris, Celia, Dmitri, Elena, Farid, Greta, Hugo, Ingrid, Jonas, Keiko, Luis, Maren, Nadia, Oskar, Priya, "
    "Quentin, Rosa, Samir, Talia, Ulrich, Vera, Wendell, Ximena, Yusuf, Zelda, Alonzo, Bettina, Cyrus, Daphne, Emil, "
    "Freya, Gideon, Hester, Ivo, Jolene, Kasimir, Leona, Matteo, Noor, Odile, Pavel, Ramona, Stellan, Tamsin, "
    "Umberto, Valerie, Wanda, Xaver, Yolanda, Anselm, Brigid, Casper, Delphine, Edgar, Fiona, Gunnar, Hedda, Ismael, "
    "Jasmin"
)
LAST_NAMES = _split(
    "Abbott, Brandt, Castell, Dorsey, Ekholm, Fontana, Grayson, Hollis, Ibarra, Jansen, Kowal, Lindner, Mercado, "
    "Novak, Oakley, Pereira, Quist, Rossi, Sandoval, Thorne, Ulman, Vasquez, Whitaker, Xu, Yamada, Zeller, Ashby, "
    "Bellamy, Corrigan, Dufour, Eastman, Falk, Goddard, Hanley, Ives, Juhasz, Keller, Lockhart, Moretti, Nyberg, "
    "Osborn, Pruitt, Quigley, Renner, Soto, Tanaka, Underhill, Voss, Wexler, Yates, Aldana, Bishop, Calder, Drake, "
    "Engel, Farrow, Gupta, Haddad, Iversen, Jarvis"
)
ALARMS = _split(
    "Wake up, Gym, Medication, Water the plants, Call home, Trash day, Feed the cat, Yoga, School run, Laundry, Bake "
    "bread, Stretch, Language class, Swim, Pack lunch, Market, Choir practice, Vitamins, Charge the car, Bedtime, "
    "Morning prayer, Standup, Check the oven, Piano lesson, Evening walk, Recycling, Car pool, Tea break, Nap time, "
    "Start dinner, Rehearsal, Train to town, Study hour, Dog walk, Meditation, Eye drops, Backup, Night shift, "
    "Breakfast, Ice pack"
)
PLAYLISTS = _split(
    "Morning Run, Deep Focus, Rainy Sunday, Road Trip, Dinner Party, Late Night, Workout Mix, Garden Hours, Slow "
    "Dance, Beach Day, Coding Flow, Old Favorites, Summer Porch, First Snow, Kitchen Radio, Long Flight, Quiet Hours, "
    "Spring Drive, City Lights, Campfire, Lazy Brunch, Power Hour, Blue Mood, Tea Time, Sunrise, Moving Day, Night "
    "Shift Mix, Harvest, Train Ride, Studio Set, Wedding List, Harbor Walk, Reading Room, Warm Up, Cool Down, Attic "
    "Finds, Backyard, Gold Tapes, Winter Sun, Two Left Feet"
)
PURPOSES = _split(
    "Pizza, Movie tickets, Groceries, Taxi, Concert, Utilities, Birthday gift, Coffee, Lunch, Bus fare, Book club, "
    "Parking, Flowers, Rent, Internet, Snacks, Cleaning, Tools, Tickets, Firewood, Fuel, Museum pass, Tennis court, "
    "Dog food, Bakery, Garden soil, Ferry, Haircut, Printer ink, Picnic, Bowling, Paint, Battery, Tax form, Ski pass, "
    "Cake, Lamp, Stamps, Toll, Soup"
)
TITLES = _split(
    "Gift ideas, Garden plan, Books to read, Packing list, Lentil soup, Meeting thoughts, Plumber, Trip checklist, "
    "Cabin wifi, Paint colours, Dentist, Seeds to order, House rules, Wine notes, Bike repair, Route home, Baby "
    "names, Quotes, Film list, Chess openings, Tent setup, Sourdough, Lost keys, Winter tyres, Knots, Camera "
    "settings, Birthday plan, Attic boxes, Train times, Vet visit, Old debts, Song ideas, Pond care, Roof leak, Spice "
    "rack, Yard sale, Map sketch, New words, Sleep log, Bee hive"
)
SENTENCES = _split(
    "I will be late today., Shall we meet on Sunday?, My number stays the same., Thank you for the help!, Call before "
    "noon., Ask for two copies., Bring the blue folder., Check the price again., Take the second exit., Keep it in "
    "the shade., Leave the door open., Write to the landlord., The key is under the pot., Dinner is at seven., Please "
    "bring a coat., The bus was early., Buy fresh mint., Turn the valve left., Count the chairs., Sand it twice., "
    "Read the last page., Wait for the bell., The shop is closed., Feed the fish., Send me the photos., Rinse the "
    "rice., Water it weekly., Park behind the barn., Return the ladder., The meeting moved., Sort by size., Use the "
    "small pan., I found your scarf., Ring twice., Cut along the line., Order more paper., Look for the red barn., "
    "Save me a seat., Dry it flat., The train left."
)
PROJECTS = _split(
    "House, Work, Garden club, Vacation, Band, Thesis, Renovation, Bookshop, Marathon, Orchard, Podcast, Nursery, "
    "Startup, Theatre, Kayak, Museum wing, Choir, Allotment, Workshop, Reunion, Fundraiser, Greenhouse, Archive, "
    "Festival, Bakery plan, Clinic, Sailing, Robotics, Newsletter, Beehives, Film club, Attic, Harbour, Bistro, "
    "Language exam, Charity run, Treehouse, Gallery, Observatory, Mosaic"
)
TODOS = _split(
    "Call the plumber, Order paint, Book the hall, Send the minutes, Fix the gate, Compare quotes, Return the drill, "
    "Print the flyers, Renew the permit, Tune the guitar, Sweep the yard, Label the jars, Scan receipts, Mend the "
    "net, Wash the tent, Prune the roses, Oil the hinge, Pick a font, Rent a van, Draft the speech, Sharpen knives, "
    "Test the alarm, Pay the fee, Measure the shelf, Frame the print, Clean the filter, Plan the menu, Hire a "
    "cellist, Water the ferns, Back up files, Patch the roof, Sort the books, Wax the skis, Buy stamps, Fold the "
    "maps, Charge the lamp, Seal the deck, Trim the hedge, Update the log, Cancel the order"
)
GROUPS = _split(
    "Lake house, Flat share, Choir trip, Board games, Ski week, Supper club, Band van, Boat crew, Trail team, Pottery "
    "class, Car share, Rowing eight, Garden shed, Film nights, Office lunch, Beach hut, Quiz team, Camp site, Cabin "
    "fund, Tennis pair, Wine cellar, Dance floor, Market stall, Bike tour, Chess club, Loft party, Surf trip, Book "
    "ring, Bread oven, Hen house"
)
PRODUCTS = _split(
    "backpack, desk lamp, water bottle, headphones, notebook, umbrella, kettle, yoga mat, raincoat, tripod, mug, "
    "blanket, wallet, thermos, keyboard, hammock, lantern, teapot, scarf, toolbox, globe, cushion, whistle, compass, "
    "stapler, basket, slippers, mirror, ladder, candle, webcam, sponge, binder, easel, anvil, kite, rug, spade, "
    "flute, vase"
)
FOLDERS = _split(
    "documents, downloads, photos, taxes, recipes, music, travel, drafts, invoices, school, projects, letters, scans, "
    "videos, maps, contracts, backups, designs, ebooks, receipts, archive, garden, papers, slides, podcasts, forms, "
    "sketches, minutes, budget, fonts, models, clips, tickets, essays, logs, albums, plans, quotes, themes, reports"
)
FILE_NAMES = _split(
    "invoice, ticket, manual, letter, receipt, map, report, sketch, list, photo, draft, permit, poster, menu, form, "
    "summary, recipe, outline, cover, agenda, diagram, survey, resume, notice, flyer, script, chart, diary, lease, "
    "badge, label, warranty, bill, essay, memo, plan, index, poem, guide, quiz"
)
ARTISTS = _split(
    "Paper Comets, Nora Vale, The Tin Orchard, Sable & Finch, Iron Meadow, Otto Lark, Blue Cartography, Mirea Stone, "
    "Low Tide Choir, The Quiet Engines, Juno Park, Cobalt Fields, Hollow Pines, Marlow Bright, The Salt Roads, Ada "
    "Winter, Copper Tongue, Felt Piano, Gray Harbor, The Night Clerks, Ruby Coast, Sister Lumen, Tall Grass, Velour, "
    "The Brass Foxes, Wren & Co, Pale Motors, Ivy League Out, Red Lantern, Northern Sofa, The Kind Ghosts, Olive "
    "Branch, Plastic Moon, Slow Carousel, Tin Whistlers, Upper Deck, Vinyl Saints, Wide Awake, Yellow Door, Zinc"
)
TITLE_ADJECTIVES = _split(
    "Amber, Broken, Crystal, Distant, Electric, Fading, Golden, Hidden, Lonely, Silent, Velvet, Wild, Burning, "
    "Frozen, Hollow, Restless"
)
"""First words of song titles, common to all shares; the second word tells them apart."""
TITLE_NOUNS = _split(
    "Harbor, Mirror, River, Lantern, Garden, Horizon, Winter, Shadow, Feather, Engine, Bridge, Candle, Desert, Echo, "
    "Forest, Glacier, Island, Jacket, Kingdom, Ladder, Meadow, Needle, Ocean, Pendulum, Quarry, Ribbon, Signal, "
    "Tunnel, Umbrella, Valley"
)
SUBJECTS = _split(
    "Keys, Question about the form, Next week, Photos, Borrowed book, Idea, Directions, Hello, Missing glove, Invoice "
    "copy, Quick favor, Weekend, Address change, Recipe, New phone, Two seats, Feedback, Our plan, Lost umbrella, "
    "Deadlines, Good news, Garage sale, Class notes, Menu draft, Window seat, Small repair, Team photo, Old boots, "
    "Long drive, Harvest fair"
)
OPEN_LISTS: dict[str, tuple[str, ...]] = {
    "first names": FIRST_NAMES,
    "last names": LAST_NAMES,
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
    "title nouns": TITLE_NOUNS,
    "subjects": SUBJECTS,
}
"""The lists that are shared out; each word of them is one token of the embedded policy."""
GENRES = ("jazz", "folk", "rock", "classical", "electronic", "soul")
BRANDS = ("Aster", "Bramble", "Corvid", "Dune", "Everly")
RELATIONSHIPS = ("roommate", "coworker", "friend", "sibling")
FILE_KINDS = ("pdf", "txt", "jpg", "csv")
PRIORITIES = ("high", "medium", "low")


def share_of(split: str) -> Share:
    """The words that a split uses."""
    return "train" if split in ("train", "demonstrations") else "dev" if split == "dev" else "tests"


def pool(words: Sequence[str], share: Share) -> list[str]:
    """The words of a list that belong to a share."""
    return [word for index, word in enumerate(words) if _OF_REMAINDER[index % len(_OF_REMAINDER)] == share]


def pick(rng: Random, words: Sequence[str], share: Share) -> str:
    """One word of a share."""
    return rng.choice(pool(words, share))


def number(rng: Random, low: int, high: int, share: Share) -> int:
    """A number of a share with `low <= number < high`: values of an instruction are shared out as words are."""
    return rng.choice([value for value in range(low, high) if _OF_REMAINDER[value % len(_OF_REMAINDER)] == share])
