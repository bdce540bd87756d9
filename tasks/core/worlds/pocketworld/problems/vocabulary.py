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
TAGS: Final = _words("work home travel health school family money hobby todo calendar item event urgent someday")
RELATIONS: Final = _words("friend coworker brother sister neighbor teacher manager roommate")
GENRES: Final = _words("jazz rock folk pop metal blues opera techno")
FOLDERS: Final = _words("inbox sent archive spam drafts trash starred social")
STATUSES: Final = _words("open done late blocked")
DAYS: Final = _words("monday tuesday wednesday thursday friday saturday sunday")
REASONS: Final = _words("lunch rent taxi dinner gas cinema gifts groceries hotel parking repairs tuition")
PASSWORD_WORDS: Final = _words("maple cedar birch willow aspen walnut spruce elm")
SHADOW_APPS: Final = (
    *_words("library kitchen garage market clinic studio museum stable bakery workshop tracker planner journal ledger"),
    *_words("shelf diary board basket closet locker"),
    *(*THINGS, *OBJECTS, *REASONS, *GENRES, "todo", "calendar"),
)
"""Names of the demonstrations' apps. They are many, and include words that are values elsewhere: only then does a model
learn to take the name from the instruction. They include the names of the held-out apps, since a model that never saw a
word as a name cannot say it; but not the held-out tables, calls and tasks."""
SHADOW_NOUNS: Final = (
    *_words(
        "book recipe tool product visit project ticket horse cake job record plan entry line thing page card order"
    ),
    *_words("box key"),
    *(*PASSWORD_WORDS, *RELATIONS, "item", "event"),
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
_APP_WORDS = (
    "supervisor api_docs phone payments music notes mail todo calendar contact message payment song note mail "
    "item event"
)
_API_WORDS = (
    "apis passwords profile complete_task list_apps list_apis show_api_doc login id password answer status "
    "success fail app api first_name last_name first last"
)
_PYTHON_WORDS = (
    "python print for in if else not and or len sum max min sorted key lambda x r a b True False None int str "
    "list dict range import def return try except pass"
)
_ERROR_WORDS = (
    "Execution successful failed ApiError MemoryError NameError KeyError IndexError TypeError SyntaxError "
    "ValueError AttributeError object name list is not defined index out of range invalid syntax has no "
    "attribute unexpected missing argument cut"
)
_INSTRUCTION_WORDS = (
    "Add a an and with to Delete the in every below above Set for For add same "
    "from What is of highest lowest Count total"
)
_MESSAGE_WORDS = (
    "You solve tasks by writing code Read the docs first There is no app has API Log in to takes arguments "
    "The password wrong must be text number or a single value task complete Use keyword No found Write one "
    "python block Only ran with id"
)
_THOUGHT_WORDS = (
    "I read the docs do it guess call assume that password is dummy must give up Now next step That should work Done"
)
PUNCTUATION: Final = tuple("\n" + "`.,:;=()[]{}\"'<>+-*/?!%_|#@&~^$\\")
NUMBERS: Final = tuple(str(number) for number in range(100))


def vocabulary() -> list[str]:
    """Return every word ([A-Za-z_]+), number (0 to 99) and punctuation mark of this world, sorted, without duplicates.

    A number above 99 is written as two-digit pieces from the left; a blank only ever separates two words.
    """
    pools: tuple[tuple[str, ...], ...] = (
        FIRST_NAMES,
        LAST_NAMES,
        ADJECTIVES,
        THINGS,
        ACTIONS,
        OBJECTS,
        TAGS,
        RELATIONS,
        GENRES,
        FOLDERS,
        STATUSES,
    )
    pools += (
        DAYS,
        REASONS,
        PASSWORD_WORDS,
        SHADOW_APPS,
        SHADOW_NOUNS,
        SENDING_LABELS,
        PAYING_LABELS,
        NUMBERS,
        PUNCTUATION,
    )
    prose = (_APP_WORDS, _API_WORDS, _PYTHON_WORDS, _ERROR_WORDS, _INSTRUCTION_WORDS, _MESSAGE_WORDS, _THOUGHT_WORDS)
    words = {word for pool in (*pools, *FIELD_LABELS.values(), *OPERATION_LABELS.values()) for word in pool}
    return sorted(words | {word for text in prose for word in text.split()})
