"""The closed vocabulary: every word that can occur in the world and its demonstrations. Words combine freely."""

from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES: Final = _words(
    "Anna Ben Cara Dan Ella Finn Gina Hugo Ines Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tina Uma Vera Will "
    "Yara Zoe Alan Beth Carl Dora"
)
LAST_NAMES: Final = _words(
    "Adams Baker Clark Davis Evans Fisher Green Hill Irwin Jones King Lee Moore Nash Owen Perry Quinn Reed "
    "Scott Turner Vance Ward Young Zane Brook Cole Drake Ford"
)
ADJECTIVES: Final = _words(
    "blue red golden silver quiet loud early late happy sad warm cold bright dark small big old new soft wild "
    "slow fast sweet secret empty lucky broken distant"
)
THINGS: Final = _words(
    "river moon garden train letter mirror window bridge forest harbor island mountain storm winter summer "
    "morning evening lantern castle desert valley meadow shadow dream story journey road dance"
)
ACTIONS: Final = _words("bring buy call carry check fetch fix move order return share wash clean paint")
OBJECTS: Final = _words("milk bread coffee keys laptop bike books tickets flowers paper boxes shoes plants chairs")
CATEGORIES: Final[dict[str, tuple[str, ...]]] = {
    "relation": _words("friend coworker brother sister neighbor teacher manager roommate"),
    "genre": _words("jazz rock folk pop metal blues opera techno"),
    "tag": _words("work home travel health school family money hobby todo calendar item event urgent someday"),
    "folder": _words("inbox sent archive spam drafts trash starred social"),
    "status": _words("open done late blocked"),
    "day": _words("monday tuesday wednesday thursday friday saturday sunday"),
    "reason": _words("lunch rent taxi dinner gas cinema gifts groceries hotel parking repairs tuition"),
}
"""Text fields with few values, as used by selections like `every note with tag work`: their values."""
PAIRS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "title": (ADJECTIVES, THINGS),
    "name": (FIRST_NAMES, LAST_NAMES),
    "artist": (FIRST_NAMES, LAST_NAMES),
    "text": (ACTIONS, OBJECTS),
}
"""Fields of two words: the left and the right ones."""
PASSWORD_WORDS: Final = _words("maple cedar birch willow aspen walnut spruce elm")
SHADOW_APPS: Final = (
    *_words("library kitchen garage market clinic studio museum stable bakery workshop tracker planner journal ledger"),
    *_words("shelf diary board basket closet locker"),
    *(*THINGS, *OBJECTS, *CATEGORIES["reason"], *CATEGORIES["genre"], "todo", "calendar"),
)
"""Names of the demonstrations' apps. They are many, and include words that are values elsewhere: only then does a model
learn to take the name from the instruction. They include the names of the held-out apps, since a model that never saw a
word as a name cannot say it; but not the held-out tables, calls and tasks."""
SHADOW_NOUNS: Final = (
    *_words(
        "book recipe tool product visit project ticket horse cake job record plan entry line thing page card order"
    ),
    *_words("box key"),
    *(*PASSWORD_WORDS, *CATEGORIES["relation"], "item", "event"),
)
FIELD_LABELS: Final[dict[str, tuple[str, ...]]] = {
    "title": ("title", "heading", "caption"),
    "name": ("name", "person", "who"),
    "number": ("number", "phone_number", "digits"),
    "relation": ("relation", "role", "bond"),
    "text": ("text", "message", "body"),
    "amount": ("amount", "sum", "price"),
    "reason": ("reason", "memo", "purpose"),
    "status": ("status", "state", "progress"),
    "artist": ("artist", "singer", "band"),
    "genre": ("genre", "style", "sound"),
    "rating": ("rating", "stars", "score"),
    "tag": ("tag", "topic", "group"),
    "folder": ("folder", "place", "tray"),
    "day": ("day", "date", "due"),
}
"""Spellings of each field that a release may use. The first is canonical: instructions and guesses use it."""
OPERATION_LABELS: Final[dict[str, tuple[str, ...]]] = {
    "list": ("list", "show", "browse", "view"),
    "find": ("find", "search", "lookup", "query"),
    "create": ("add", "create", "write", "insert"),
    "update": ("update", "set", "change", "edit"),
    "delete": ("delete", "remove", "erase", "drop"),
}
SENDING_LABELS: Final = ("send", "post", "deliver", "submit")
PAYING_LABELS: Final = ("pay", "transfer", "give", "issue")
_PROSE: Final = _words(
    "supervisor api_docs phone payments music notes mail todo calendar contact message payment song note item event "
    "apis passwords profile complete_task list_apps list_apis show_api_doc login id password answer status success "
    "fail app api first_name last_name first last python print for in if else not and or len sum max min sorted key "
    "lambda x r a b True False None int str list dict range import def return try except pass Execution successful "
    "failed ApiError MemoryError NameError KeyError IndexError TypeError SyntaxError ValueError AttributeError object "
    "name is defined index out of invalid syntax has no attribute unexpected missing argument cut Add an with to "
    "Delete the every below above Set For add same from What highest lowest Count total You solve tasks by writing "
    "code Read docs There API Log takes arguments The wrong must be text number single value task complete Use "
    "keyword No found Write one block Only ran I read do it guess call assume that dummy give up Now next step That "
    "should work Done"
)
"""Words of instructions, of code, of the world's messages and of demonstrated thoughts."""
PUNCTUATION: Final = tuple("\n" + "`.,:;=()[]{}\"'<>+-*/?!%_|#@&~^$\\")
NUMBERS: Final = tuple(str(number) for number in range(100))


def vocabulary() -> list[str]:
    """Return every word ([A-Za-z_]+), number (0 to 99) and punctuation mark of this world, sorted, without duplicates.

    A number above 99 is written as two-digit pieces from the left; a blank only ever separates two words.
    """
    entities = (FIRST_NAMES, LAST_NAMES, ADJECTIVES, THINGS, ACTIONS, OBJECTS, *CATEGORIES.values(), PASSWORD_WORDS)
    names = (SHADOW_APPS, SHADOW_NOUNS, SENDING_LABELS, PAYING_LABELS, *FIELD_LABELS.values())
    pools = (*entities, *names, *OPERATION_LABELS.values(), NUMBERS, PUNCTUATION, _PROSE)
    return sorted({word for pool in pools for word in pool})
