"""Templates of the file system, one of them with Simple Note."""

from random import Random
from typing import Any

from ..people import Person
from ..template import CannotDraw, Draw, Rows, Scenario, phrased
from ..words import FILE_KINDS, FILE_NAMES, pool
from ..world import World
from .notes import unused_title


def folders(world: World, person: Person) -> list[str]:
    """The names of the person's folders."""
    return sorted({path.partition("/")[0] for path in world.files[person.id]})


def touched(home: str, *names: str) -> Rows:
    """The folders whose files change, and those that they are in: their time changes too."""
    paths = ["/", "/home/", f"{home}/", *(f"{home}/{name}/" for name in names)]
    return Rows(updated=[{"path": path} for path in paths], fields=["updated_at"])


def inside(world: World, person: Person, folder: str, kind: str = "") -> list[str]:
    """The names of the files in a folder, of one kind."""
    paths = [path.split("/") for path in world.files[person.id]]
    return [name for place, name in paths if place == folder and name.endswith(kind)]


class FileKind(Scenario):
    """Delete, or move, all files of one kind in a folder."""

    DIFFICULTY = 2
    APPS = ("file_system",)
    VARIANTS = ({"move": False}, {"move": True})

    @staticmethod
    def draw(rng: Random, world: World, person: Person, move: bool) -> Draw:
        folder, target = rng.sample(folders(world, person), 2)
        kind = rng.choice(FILE_KINDS)
        names = inside(world, person, folder, f".{kind}")
        if set(names) & set(inside(world, person, target)):
            raise CannotDraw  # a file of the same name at the target makes the move ambiguous
        home = f"/home/{person.first_name.lower()}"
        if move:
            instruction = phrased(
                rng,
                f"Move all .{kind} files in ~/{folder} of my file system to ~/{target}.",
                f"In my file system, put every .{kind} file of ~/{folder} into ~/{target}.",
            )
            contents = world.files[person.id]
            files = Rows(
                added=[{"path": f"{home}/{target}/{name}", "content": contents[f"{folder}/{name}"]} for name in names],
                removed=[{"path": f"{home}/{folder}/{name}"} for name in names],
            )
        else:
            instruction = phrased(
                rng,
                f"Delete all .{kind} files in ~/{folder} of my file system.",
                f"Remove every .{kind} file from the folder ~/{folder} in my file system.",
            )
            files = Rows(removed=[{"path": f"{home}/{folder}/{name}"} for name in names])
        public = {"folder": folder, "kind": kind, "target": target, "move": move}
        expect = {
            "file_system.File": files,
            "file_system.Directory": touched(home, *((folder, target) if move else (folder,))),
        }
        return Draw(instruction, public, expect=expect)

    @staticmethod
    def solution(apis: Any, file_system_token: str, folder: str, kind: str, target: str, move: bool) -> None:
        # I list the files.
        found = apis.file_system.show_directory(access_token=file_system_token, directory_path=f"~/{folder}")
        found = [x for x in found if x.endswith(f".{kind}")]
        print(len(found))
        # I do it to each of them.
        for x in found:
            if move:
                apis.file_system.move_file(
                    access_token=file_system_token,
                    source_file_path=x,
                    destination_file_path=f"~/{target}/" + x.split("/")[-1],
                )
            else:
                apis.file_system.delete_file(access_token=file_system_token, file_path=x)
        # All is done.
        apis.supervisor.complete_task()


class FileCount(Scenario):
    """A question: how many files of one kind a folder has."""

    DIFFICULTY = 1
    APPS = ("file_system",)
    VARIANTS = tuple({"kind": kind} for kind in FILE_KINDS)

    @staticmethod
    def draw(rng: Random, world: World, person: Person, kind: str) -> Draw:
        folder = rng.choice(folders(world, person))
        instruction = phrased(
            rng,
            f"How many .{kind} files are in ~/{folder} of my file system?",
            f"Count the .{kind} files of the folder ~/{folder} in my file system.",
        )
        return Draw(instruction, {"folder": folder, "kind": kind}, len(inside(world, person, folder, f".{kind}")))

    @staticmethod
    def solution(apis: Any, file_system_token: str, folder: str, kind: str) -> None:
        # I list the files.
        found = apis.file_system.show_directory(access_token=file_system_token, directory_path=f"~/{folder}")
        found = [x for x in found if x.endswith(f".{kind}")]
        print(len(found))
        # That is the answer.
        apis.supervisor.complete_task(answer=len(found))


class FileRename(Scenario):
    """Give one file another name."""

    DIFFICULTY = 1
    APPS = ("file_system",)

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        folder = rng.choice(folders(world, person))
        names = inside(world, person, folder)
        old, kind = rng.choice(names).split(".")
        new = rng.choice([one for one in pool(FILE_NAMES, person.share) if f"{one}.{kind}" not in names])
        instruction = phrased(
            rng,
            f"Rename the file {old}.{kind} in ~/{folder} of my file system to {new}.{kind}.",
            f"In the folder ~/{folder} of my file system, change the name of {old}.{kind} to {new}.{kind}.",
        )
        home = f"/home/{person.first_name.lower()}"
        content = world.files[person.id][f"{folder}/{old}.{kind}"]
        rows = Rows(
            added=[{"path": f"{home}/{folder}/{new}.{kind}", "content": content}],
            removed=[{"path": f"{home}/{folder}/{old}.{kind}"}],
        )
        public = {"folder": folder, "old": f"{old}.{kind}", "new": f"{new}.{kind}"}
        expect = {"file_system.File": rows, "file_system.Directory": touched(home, folder)}
        return Draw(instruction, public, expect=expect)

    @staticmethod
    def solution(apis: Any, file_system_token: str, folder: str, old: str, new: str) -> None:
        # I rename it.
        apis.file_system.move_file(
            access_token=file_system_token,
            source_file_path=f"~/{folder}/{old}",
            destination_file_path=f"~/{folder}/{new}",
        )
        # All is done.
        apis.supervisor.complete_task()


class FileRead(Scenario):
    """A question: what a file says."""

    DIFFICULTY = 1
    APPS = ("file_system",)

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        folder = rng.choice(folders(world, person))
        name = rng.choice(inside(world, person, folder))
        instruction = phrased(
            rng,
            f"What does the file {name} in ~/{folder} of my file system say?",
            f"Read me the content of {name} in the folder ~/{folder} of my file system.",
        )
        return Draw(instruction, {"folder": folder, "name": name}, world.files[person.id][f"{folder}/{name}"])

    @staticmethod
    def solution(apis: Any, file_system_token: str, folder: str, name: str) -> None:
        # I read it.
        found = apis.file_system.show_file(access_token=file_system_token, file_path=f"~/{folder}/{name}")
        print(found["content"])
        # That is the answer.
        apis.supervisor.complete_task(answer=found["content"])


class FileToNote(Scenario):
    """Write what a file says into a new note."""

    DIFFICULTY = 2
    APPS = ("file_system", "simple_note")

    @staticmethod
    def draw(rng: Random, world: World, person: Person) -> Draw:
        folder = rng.choice(folders(world, person))
        name = rng.choice(inside(world, person, folder))
        title = unused_title(rng, world, person)
        instruction = phrased(
            rng,
            f'Create a Simple Note "{title}" with the content of the file {name} in ~/{folder} of my file system.',
            f'Copy what {name} in the folder ~/{folder} of my file system says into a new Simple Note "{title}".',
        )
        content = world.files[person.id][f"{folder}/{name}"]
        row = {"title": title, "content": content, "user.email": person.email}
        public = {"folder": folder, "name": name, "title": title}
        return Draw(instruction, public, expect={"simple_note.Note": Rows(added=[row])})

    @staticmethod
    def solution(apis: Any, file_system_token: str, simple_note_token: str, folder: str, name: str, title: str) -> None:
        # I read it.
        found = apis.file_system.show_file(access_token=file_system_token, file_path=f"~/{folder}/{name}")
        print(found["content"])
        # I write the note.
        apis.simple_note.create_note(access_token=simple_note_token, title=title, content=found["content"])
        # All is done.
        apis.supervisor.complete_task()
