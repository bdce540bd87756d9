"""Write a note."""

from random import Random
from typing import Any

from ..people import Person
from ..template import Draw
from ..world import World

DIFFICULTY = 1
APPS = ("simple_note",)
VARIANTS = ({"pinned": False}, {"pinned": True})
_TITLES = ("Plumber", "Trip checklist", "Wifi at the cabin", "Paint colours", "Dentist", "Seeds to order")
_CONTENTS = ("Call before noon.", "Ask for two copies.", "Bring the blue folder.", "Check the price again.")


def draw(rng: Random, world: World, person: Person, pinned: bool) -> Draw:
    title, content = rng.choice(_TITLES), rng.choice(_CONTENTS)
    kind = "pinned note" if pinned else "note"
    return Draw(
        instruction=f'Create a {kind} in Simple Note with the title "{title}" and the content "{content}"',
        public={"title": title, "content": content, "pinned": pinned},
    )


def solution(apis: Any, simple_note_token: str, title: str, content: str, pinned: bool) -> None:
    apis.simple_note.create_note(access_token=simple_note_token, title=title, content=content, pinned=pinned)
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, public_data: Any, main_user: Any) -> None:
    with test("assert only notes changed."):
        test.case(models.changed_model_names(), "==", {"simple_note.Note"})
    added, updated, removed = models.changed_records("simple_note.Note")
    with test("assert one note was added and none updated or removed."):
        test.case((len(added), len(updated), len(removed)), "==", (1, 0, 0))
    with test("assert the new note has the title and content asked for."):
        test.case((added[0].title, added[0].content), "==", (public_data.title, public_data.content))
    with test("assert the new note is pinned only if asked for, and belongs to the supervisor."):
        test.case((bool(added[0].pinned), added[0].user.email), "==", (public_data.pinned, main_user.email))
