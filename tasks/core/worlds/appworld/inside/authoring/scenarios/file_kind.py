"""Delete, or move, all files of one kind in a folder."""

from random import Random
from typing import Any

from ..people import Person
from ..template import Draw
from ..world import FILE_KINDS, FOLDERS, World

DIFFICULTY = 2
APPS = ("file_system",)
VARIANTS = ({"action": "delete"}, {"action": "move"})


def draw(rng: Random, world: World, person: Person, action: str) -> Draw:
    folder, target = rng.sample(FOLDERS, 2)
    kind = rng.choice(FILE_KINDS)
    paths = [path for path in world.files[person.id] if path.startswith(f"{folder}/") and path.endswith(f".{kind}")]
    home = f"/home/{person.first_name.lower()}/"
    names = {path.partition("/")[2] for path in world.files[person.id] if path.startswith(f"{target}/")}
    moved = [path for path in paths if path.partition("/")[2] not in names]
    clashes = [path for path in paths if path not in moved]

    def change(collection: Any) -> None:
        # A file of the same name at the target would make the move ambiguous.
        for path in clashes:
            collection.file_system.File.find_one(user_id=person.id, path=home + path).delete()

    instruction = {
        "delete": f"Delete all .{kind} files in ~/{folder} of my file system.",
        "move": f"Move all .{kind} files in ~/{folder} of my file system to ~/{target}.",
    }[action]
    if not moved:
        return draw(rng, world, person, action)
    return Draw(
        instruction,
        {"folder": folder, "kind": kind, "target": target if action == "move" else None},
        {
            "gone": sorted(home + path for path in moved),
            "come": sorted(f"{home}{target}/{path.partition('/')[2]}" for path in moved) if action == "move" else [],
        },
        change=change,
    )


def solution(apis: Any, file_system_token: str, folder: str, kind: str, target: str | None) -> None:
    paths = apis.file_system.show_directory(
        access_token=file_system_token, directory_path=f"~/{folder}", entry_type="files", recursive=False
    )
    for path in paths:
        if not path.endswith(f".{kind}"):
            continue
        if target is None:
            apis.file_system.delete_file(access_token=file_system_token, file_path=path)
        else:
            name = path.rsplit("/", 1)[1]
            apis.file_system.move_file(
                access_token=file_system_token, source_file_path=path, destination_file_path=f"~/{target}/{name}"
            )
    apis.supervisor.complete_task()


def evaluate(test: Any, models: Any, private_data: Any) -> None:
    with test("assert only files changed, and no folder was added or removed."):
        test.case(models.changed_model_names() - {"file_system.Directory"}, "==", {"file_system.File"})
        added, updated, removed = models.changed_records("file_system.Directory")
        test.case((len(added), len(removed)), "==", (0, 0))
        fields = [models.changed_field_names("file_system.Directory", one.id) for one in updated]
        test.case(set().union(*fields) - {"updated_at"}, "==", set())
    start = {file.path: file.content for file in models.start.file_system.File.all()}
    end = {file.path: file.content for file in models.end.file_system.File.all()}
    with test("assert exactly the files asked for left their places."):
        test.case(sorted(set(start) - set(end)), "==", list(private_data.gone))
    with test("assert exactly the files asked for came to new places."):
        test.case(sorted(set(end) - set(start)), "==", list(private_data.come))
    with test("assert no file lost its content."):
        test.case(sorted(end.values()), "==", sorted(v for p, v in start.items() if private_data.come or p in end))
