"""Kinds of one thing, found by their names: worlds, and whatever else a package may bring.

A kind exports one value, its face. The folder `tasks/core/worlds/sokoban/` has it in its module `kind` (`WORLD`); an
installed package names it in an entry point:

    [project.entry-points."loopline.worlds"]
    key_value = "loopline_key_value.kind:WORLD"

Folders of this repository come first. Nothing is imported before its name is asked for.
"""

import importlib
import json
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[3]
FACE = "kind"
"""Module of a folder that exports its face."""


class UnknownKind(ValueError):  # noqa: N818
    """No kind has this name, or the package that brings it is broken; the message says which."""


@dataclass(frozen=True)
class Late:
    """A value that is imported when it is used, which keeps a face light: Late("my_world.world:open_my_world").

    Called, it calls that value, a function.
    """

    place: str
    """`module:name`; the name may have dots."""

    def load(self) -> Any:
        """Import the value and return it."""
        module, _, name = self.place.partition(":")
        return operator.attrgetter(name)(importlib.import_module(module))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.load()(*arguments, **named)


@dataclass(frozen=True)
class Kinds:
    """All kinds of one thing."""

    noun: str
    """Name of such a thing in messages: "world"."""
    package: str
    """Package whose folders are kinds: "tasks.core.worlds"."""
    value: str
    """Name of the face in a folder's module `kind`: "WORLD"."""
    group: str
    """Group of the entry points of other packages: "loopline.worlds"."""

    def find(self, name: str) -> Any:
        """Import and return the face of the kind `name`. Raises UnknownKind."""
        return _imported(self, name)

    def has(self, name: str) -> bool:
        """Return whether a folder or an installed package brings this kind."""
        return self.is_own(name) or any(self._entries(name))

    def is_own(self, name: str) -> bool:
        """Return whether a folder of this repository brings this kind."""
        return name.isidentifier() and (self.folder(name) / f"{FACE}.py").is_file()

    def own_names(self) -> list[str]:
        """Return the names of the repository's own kinds, sorted."""
        return sorted(file.parent.name for file in self._home.glob(f"*/{FACE}.py"))

    def names(self) -> list[str]:
        """Return all names: the repository's own, then those of installed packages."""
        own = self.own_names()
        return [*own, *sorted({entry.name for entry in self._entries()} - {*own})]

    def folder(self, name: str) -> Path:
        """Return the folder of the repository's own kind `name`."""
        return self._home / name

    def module(self, name: str) -> str:
        """Return the name of the module that exports the face of the kind `name`. Raises UnknownKind."""
        return f"{self.package}.{name}.{FACE}" if self.is_own(name) else self._entry(name).module

    def distribution(self, name: str) -> Distribution | None:
        """Return the installed distribution that brings the kind `name`; None for one of the repository's own.

        Raises UnknownKind.
        """
        return None if self.is_own(name) else self._entry(name).dist

    def installed_at(self, name: str) -> Path | None:
        """Return the file or folder that changes with the package that brings the kind `name`; None for an own one.

        An editable install is where its sources are; another one has a list of its files, with their digests, which is
        written when it is installed. Raises UnknownKind.
        """
        distribution = self.distribution(name)
        if distribution is None:
            return None
        listed = [file for file in distribution.files or () if file.name == "RECORD"]
        if is_editable(distribution) or not listed:
            return package_home(self.module(name))
        return Path(str(distribution.locate_file(listed[0])))

    @property
    def _home(self) -> Path:
        return PROJECT.joinpath(*self.package.split("."))

    def _entries(self, name: str | None = None) -> Iterator[EntryPoint]:
        entries = entry_points(group=self.group)
        return iter(entries if name is None else entries.select(name=name))

    def _entry(self, name: str) -> EntryPoint:
        found = {entry.value: entry for entry in self._entries(name)}
        if not found:
            raise UnknownKind(
                f"no {self.noun} is called {name!r}: there are {', '.join(self.names())}; an installed package brings "
                f"another by an entry point of the group {self.group}"
            )
        if len(found) > 1:
            raise UnknownKind(
                f"{self.noun} {name}: more than one package brings it: {', '.join(sorted(map(_of, found.values())))}"
            )
        return next(iter(found.values()))


@cache
def _imported(kinds: Kinds, name: str) -> Any:
    if kinds.is_own(name):
        return getattr(importlib.import_module(kinds.module(name)), kinds.value)
    entry = kinds._entry(name)
    try:
        return entry.load()
    except Exception as error:
        raise UnknownKind(f"{kinds.noun} {name}: {_of(entry)} is broken: {type(error).__name__}: {error}") from error


def package_home(module: str) -> Path:
    """Return the folder of the package in which `module` lies, or the file of a module that lies in none."""
    top = module.partition(".")[0]
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        raise UnknownKind(f"there is no module {top}, which an entry point names")
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def is_editable(distribution: Distribution) -> bool:
    """Return whether a distribution was installed as `pip install -e` does, from where its sources are."""
    told = json.loads(distribution.read_text("direct_url.json") or "{}")
    return bool(told.get("dir_info", {}).get("editable"))


def _of(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version} ({entry.value})" if entry.dist else entry.value
