"""Templates of Simple Note alone."""

from random import Random
from typing import Any

from ..paging import all_pages
from ..people import Person
from ..template import Draw, Rows, Scenario, phrased
from ..words import SENTENCES, TITLES, pick, pool
from ..world import World


def unused_title(rng: Random, world: World, person: Person) -> str:
    """A title that no note of the person has."""
    used = {title for title, _ in world.notes[person.id]}
    return rng.choice([title for title in pool(TITLES, person.share) if title not in used])


class NoteCreate(Scenario):
    """Write a note."""

    DIFFICULTY = 1
    APPS = ("simple_note",)
    VARIANTS = ({"pinned": False}, {"pinned": True})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, pinned: bool) -> Draw:
        title, content = unused_title(rng, world, person), pick(rng, SENTENCES, person.share)
        kind = "pinned note" if pinned else "note"
        instruction = phrased(
            rng,
            f'Create a {kind} in Simple Note with the title "{title}" and the content "{content}"',
            f'Write a {kind} "{title}" in Simple Note that says: "{content}"',
        )
        row = {"title": title, "content": content, "pinned": pinned, "user.email": person.email}
        public = {"title": title, "content": content, "pinned": pinned}
        return Draw(instruction, public, expect={"simple_note.Note": Rows(added=[row])})

    @staticmethod
    def solution(apis: Any, simple_note_token: str, title: str, content: str, pinned: bool) -> None:
        # I write the note.
        apis.simple_note.create_note(access_token=simple_note_token, title=title, content=content, pinned=pinned)
        # All is done.
        apis.supervisor.complete_task()


class NoteReplace(Scenario):
    """Replace the content of a note."""

    DIFFICULTY = 1
    APPS = ("simple_note",)

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        title = rng.choice(world.notes[person.id])[0]
        content = pick(rng, SENTENCES, person.share)
        instruction = phrased(
            rng,
            f'Replace the content of my Simple Note "{title}" by "{content}"',
            f'Make my Simple Note "{title}" say "{content}" and nothing else.',
        )
        row = {"title": title, "content": content, "user.email": person.email}
        expect = {"simple_note.Note": Rows(updated=[row], fields=["content", "updated_at"])}
        return Draw(instruction, {"title": title, "content": content}, expect=expect)

    @staticmethod
    def solution(apis: Any, simple_note_token: str, title: str, content: str) -> None:
        # I look for the note.
        found = all_pages(apis.simple_note.search_notes, access_token=simple_note_token, query=title)
        note = next(x for x in found if x["title"] == title)
        print(note["note_id"])
        # I change it.
        apis.simple_note.update_note(access_token=simple_note_token, note_id=note["note_id"], content=content)
        # All is done.
        apis.supervisor.complete_task()


class NotePinOrDelete(Scenario):
    """Pin a note, or delete it."""

    DIFFICULTY = 1
    APPS = ("simple_note",)
    VARIANTS = ({"delete": False}, {"delete": True})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, delete: bool) -> Draw:
        title = rng.choice(world.notes[person.id])[0]
        row = {"title": title, "user.email": person.email}
        rows = (
            Rows(removed=[row]) if delete else Rows(updated=[row | {"pinned": True}], fields=["pinned", "updated_at"])
        )
        verb = "Delete" if delete else "Pin"
        instruction = phrased(
            rng, f'{verb} my Simple Note "{title}".', f'{verb} the note with the title "{title}" in Simple Note.'
        )
        return Draw(instruction, {"title": title, "delete": delete}, expect={"simple_note.Note": rows})

    @staticmethod
    def solution(apis: Any, simple_note_token: str, title: str, delete: bool) -> None:
        # I look for the note.
        found = all_pages(apis.simple_note.search_notes, access_token=simple_note_token, query=title)
        note = next(x for x in found if x["title"] == title)
        print(note["note_id"])
        # I change it.
        if delete:
            apis.simple_note.delete_note(access_token=simple_note_token, note_id=note["note_id"])
        else:
            apis.simple_note.update_note(access_token=simple_note_token, note_id=note["note_id"], pinned=True)
        # All is done.
        apis.supervisor.complete_task()


class NoteLines(Scenario):
    """A question: how many lines a note has, or which is its last."""

    DIFFICULTY = 1
    APPS = ("simple_note",)
    VARIANTS = ({"asked": "count"}, {"asked": "last"}, {"asked": "first"})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, asked: str) -> Draw:
        title, content = rng.choice(world.notes[person.id])
        lines = content.splitlines()
        answer = len(lines) if asked == "count" else lines[-1 if asked == "last" else 0]
        if asked == "count":
            instruction = phrased(
                rng,
                f'How many lines does my Simple Note "{title}" have?',
                f'Count the lines of my Simple Note "{title}".',
            )
        else:
            instruction = phrased(
                rng,
                f'What is the {asked} line of my Simple Note "{title}"?',
                f'Give me the {asked} line of the note "{title}" in Simple Note.',
            )
        return Draw(instruction, {"title": title, "asked": asked}, answer)

    @staticmethod
    def solution(apis: Any, simple_note_token: str, title: str, asked: str) -> None:
        # I look for the note.
        found = all_pages(apis.simple_note.search_notes, access_token=simple_note_token, query=title)
        note = next(x for x in found if x["title"] == title)
        print(note["note_id"])
        # I read it.
        note = apis.simple_note.show_note(access_token=simple_note_token, note_id=note["note_id"])
        lines = note["content"].splitlines()
        answer = len(lines) if asked == "count" else lines[-1] if asked == "last" else lines[0]
        print(answer)
        # That is the answer.
        apis.supervisor.complete_task(answer=answer)
