"""What a host keeps of what it was sent: checked by its digest when it is used, bounded, and shared by processes."""

import hashlib
import logging
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from flows.workers.content_cache import ContentCache, NeededFile, NeededFolder, OwnProject, folders_in, moved
from tasks.core.records.files import ArtifactError, fingerprint


class Wire:
    """Files that are sent, and how often each was."""

    def __init__(self, *contents: bytes) -> None:
        self.contents = {sha(content): content for content in contents}
        self.sent = {name: partial(self._send, content) for name, content in self.contents.items()}
        self.fetched: list[bytes] = []

    def _send(self, content: bytes) -> Iterator[bytes]:
        self.fetched.append(content)
        yield content[:1]
        yield content[1:]


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def files(**contents: bytes) -> list[NeededFile]:
    return [NeededFile(name, sha(content)) for name, content in contents.items()]


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def read(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_file_is_fetched_once_for_all_folders_that_have_it(tmp_path: Path) -> None:
    cache, wire = ContentCache(tmp_path / "cache", 1e9), Wire(b"one", b"two")
    one, other = tmp_path / "cache" / "a", tmp_path / "cache" / "b"
    assert cache.place({one: files(x=b"one", y=b"two")}, {}) == sorted(wire.contents)
    assert not one.exists()
    assert cache.place({one: files(x=b"one", y=b"two")}, wire.sent) == []
    assert ContentCache(tmp_path / "cache", 1e9).place({other: [NeededFile("in/it", sha(b"two"))]}, {}) == []
    assert read(one) == {"x": b"one", "y": b"two"} and read(other) == {"in/it": b"two"}
    assert wire.fetched == [b"one", b"two"] or wire.fetched == [b"two", b"one"]


def test_what_was_damaged_in_the_cache_is_fetched_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache, wire = ContentCache(tmp_path, 1e9), Wire(b"one")
    cache.place({tmp_path / "a": files(x=b"one")}, wire.sent)
    (tmp_path / "files" / sha(b"one")).write_bytes(b"rot")
    with caplog.at_level(logging.WARNING):
        assert cache.place({tmp_path / "b": files(x=b"one")}, {}) == [sha(b"one")]
    assert "damaged" in caplog.text
    assert cache.place({tmp_path / "b": files(x=b"one")}, wire.sent) == []
    assert read(tmp_path / "b") == {"x": b"one"}


def test_nothing_is_kept_of_a_file_whose_sending_breaks_off_or_brings_another_content_or_finds_the_disk_full(
    tmp_path: Path,
) -> None:
    cache, wire = ContentCache(tmp_path, 1e9), Wire(b"a long one")

    def broken() -> Iterator[bytes]:
        yield b"a lo"
        raise ConnectionError("cut")

    def onto_a_full_disk() -> Iterator[bytes]:
        yield b"a lo"
        Path("/dev/full").write_bytes(b"more")

    def another() -> Iterator[bytes]:
        yield b"another"

    for sending, fault in ((broken, "cut"), (onto_a_full_disk, "No space"), (another, "sent with another content")):
        with pytest.raises((OSError, ArtifactError), match=fault):
            cache.place({tmp_path / "a": files(x=b"a long one")}, {sha(b"a long one"): sending})
        assert names_in(tmp_path / "files") == []
    assert cache.place({tmp_path / "a": files(x=b"a long one")}, wire.sent) == []
    assert read(tmp_path / "a") == {"x": b"a long one"}


def test_the_file_that_was_used_longest_ago_goes_and_none_in_use(tmp_path: Path) -> None:
    cache, wire = ContentCache(tmp_path, 8), Wire(b"one", b"two", b"six", b"abc" * 9)
    cache.place({tmp_path / "a": files(x=b"one")}, wire.sent)
    cache.place({tmp_path / "b": files(x=b"two")}, wire.sent)
    cache.place({tmp_path / "c": files(x=b"one")}, wire.sent)  # used again
    cache.place({tmp_path / "d": files(x=b"six")}, wire.sent)
    assert read(tmp_path / "files").keys() == {sha(b"one"), sha(b"six")}
    assert read(tmp_path / "b") == {"x": b"two"}
    cache.place({tmp_path / "e": files(x=b"abc" * 9)}, wire.sent)
    assert read(tmp_path / "files").keys() == {sha(b"abc" * 9)}


LARGE = b"x" * 10_000_000


def place_noted(cache: Path, name: str) -> list[str]:
    """Place a large file, which is sent slowly, and leave a note for each time that it is sent."""

    def slowly() -> Iterator[bytes]:
        (cache / f"sent_to_{name}").touch()
        for first in range(0, len(LARGE), 10**6):
            time.sleep(0.1)
            yield LARGE[first : first + 10**6]

    return ContentCache(cache, 1e9).place({cache / name: files(x=LARGE)}, {sha(LARGE): slowly})


def test_two_processes_that_want_the_same_fetch_it_once(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(place_noted, [tmp_path] * 2, "ab")) == [[], []]
    assert len(list(tmp_path.glob("sent_to_*"))) == 1
    assert read(tmp_path / "a") == read(tmp_path / "b") == {"x": LARGE}


@dataclass(frozen=True)
class Rule:
    """A part of an item."""

    folder: Path


@dataclass(frozen=True)
class Item:
    """An item that names folders."""

    policy: Path
    rule: Rule
    other: str = "kept"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project of the pipeline's machine, with a world and two policies."""
    for name in ("data/world", "data/i000/policy", "data/i001/policy"):
        (tmp_path / "project" / name).mkdir(parents=True)
        (tmp_path / "project" / name / "file").write_text(name)
    return tmp_path / "project"


def needs_of(*folders: Path) -> list[NeededFolder]:
    return [NeededFolder.of(folder) for folder in folders]


def sent(needs: list[NeededFolder]) -> Mapping[str, Wire]:
    return Wire(*((need.path / name).read_bytes() for need in needs for name, _ in need.files)).sent  # type: ignore[return-value]


def test_a_folder_is_used_as_it_is_where_it_has_the_same_files(project: Path) -> None:
    (need,) = needs_of(project / "data" / "world")
    assert need.is_here()
    (project / "data" / "world" / "more").touch()
    assert need.is_here()
    (project / "data" / "world" / "file").write_text("another")
    assert not need.is_here()
    (project / "data" / "world" / "file").unlink()
    assert not need.is_here()


def test_an_items_paths_move_with_the_folders_that_hold_them(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "model"
    outside.mkdir()
    item = Item(outside, Rule(project / "data" / "world"))
    assert folders_in(item, project / "absent") == [outside, project / "data" / "world"]
    own = OwnProject(ContentCache(tmp_path / "cache", 1e9), tmp_path)
    there = moved(item, own.places(project, needs_of(outside, project / "data" / "world")))
    assert there.rule.folder == own.folder / "data" / "world" and there.other == "kept"
    assert there.policy.is_relative_to(own.folder) and there.policy.name == "model"
    assert moved(item, {}) is item


def test_a_host_has_what_its_shard_needs_and_nothing_of_earlier_ones(project: Path, tmp_path: Path) -> None:
    own = OwnProject(ContentCache(tmp_path / "cache", 1e9), tmp_path / "checkout")
    world = project / "data" / "world"
    first = needs_of(world, project / "data" / "i000" / "policy")
    assert len(own.fill(project, first, {})) == 2
    assert own.fill(project, first, sent(first)) == []  # type: ignore[arg-type]
    assert read(own.folder) == {"data/world/file": b"data/world", "data/i000/policy/file": b"data/i000/policy"}
    before = fingerprint(own.folder / "data" / "world")
    second = needs_of(world, project / "data" / "i001" / "policy")
    assert own.fill(project, second, sent(second)) == []  # type: ignore[arg-type]
    assert read(own.folder) == {"data/world/file": b"data/world", "data/i001/policy/file": b"data/i001/policy"}
    assert fingerprint(own.folder / "data" / "world") == before  # else the world would be opened again
    assert (own.folder / ".loopline" / "interpreters").resolve() == tmp_path / "checkout" / ".loopline" / "interpreters"


def test_what_a_killed_worker_left_is_removed(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path / "cache", 1e9)
    dead = OwnProject(cache, tmp_path)
    left = dead.folder.rename(dead.folder.with_name(f"{dead.folder.name.rpartition('-')[0]}-{2**22 + 1}"))
    assert left.is_dir() and names_in(tmp_path / "cache" / "projects") == [left.name]
    own = OwnProject(cache, tmp_path)
    assert names_in(tmp_path / "cache" / "projects") == [own.folder.name]
    own.close()
    assert names_in(tmp_path / "cache" / "projects") == []


def test_files_that_nobody_asked_for_are_no_part_of_a_needed_folder(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"needed")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "moments").write_bytes(b"large")
    assert NeededFolder.of(tmp_path, {"moments"}).files == (NeededFile("weights", sha(b"needed")),)
    assert len(NeededFolder.of(tmp_path).files) == 2
