"""The models that a command line names. Pure, but for looking whether a folder exists."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from flows.errors import WrongArgument
from tasks.core.config.policy import PACKAGED
from tasks.core.policies.checkpoint_files import FULL_CONFIG, holds_adapter
from tasks.core.records.comparison import ModelKind

REGISTERED = "models:/"
_HUB_ID = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?")
_VERSION = re.compile(r"models:/(?P<name>[^/@]+)(/(?P<number>\d+)|@(?P<alias>[\w-]+))")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
KNOWN = "a folder, a hub id, an adapter's folder, models:/NAME/3, models:/NAME@champion, or a URL and a model's name"


class UnknownModel(WrongArgument):
    """No model is meant by what was given; the message says what could be."""


@dataclass(frozen=True)
class AskedModel:
    """One model, as it was named."""

    kind: ModelKind
    text: str
    """All of it, for records."""
    name: str
    """The folder, the hub id, the registered model's name, or what the server calls it."""
    at: str = ""
    """The server's URL, the version's number or alias, or the hub's revision."""

    @property
    def short(self) -> str:
        """A name for tables and folders."""
        parts = [part for part in re.split(r"[^\w.=-]+", self.name.removeprefix(PACKAGED)) if part]
        if self.kind in ("adapter", "weights") and parts[-1] == "policy" and len(parts) > 1:
            parts.pop()  # a run's checkpoint: data/iterations/i016/policy
        return f"{parts[-1]}-{self.at}" if self.kind == "version" else parts[-1]


def asked_models(words: Sequence[str]) -> list[AskedModel]:
    """Return the models that the words name; a URL takes the word after it too. Raises UnknownModel."""
    found = list(_asked(iter(words)))
    if twice := [model.text for model in found if found.count(model) > 1]:
        raise UnknownModel(f"{twice[0]}: named twice")
    return found


def is_url(word: str) -> bool:
    """Return whether a word is a server's address."""
    return word.startswith(("http://", "https://"))


def _asked(words: Iterator[str]) -> Iterator[AskedModel]:
    for word in words:
        if is_url(word):
            name = next(words, "")
            if not name or is_url(name) or not urlsplit(word).hostname:
                raise UnknownModel(f"{word}: after a server's URL comes the model's name, as in {word} my-model")
            yield AskedModel("api", f"{word} {name}", name, word.rstrip("/"))
        elif word.startswith(REGISTERED):
            yield _version(word)
        else:
            yield _files(word)


def _version(word: str) -> AskedModel:
    found = _VERSION.fullmatch(word)
    if found is None:
        raise UnknownModel(f"{word}: a registered version is models:/NAME/3 or models:/NAME@champion")
    return AskedModel("version", word, found["name"], found["number"] or found["alias"])


def _files(word: str) -> AskedModel:
    folder, hub = Path(word), _HUB_ID.fullmatch(word)
    if word.startswith(PACKAGED):
        return AskedModel("model", word, word)
    if folder.is_dir():
        return AskedModel(_kind_of(folder), word, word)
    if hub is not None and not word.startswith(("data/", "./", "../")):
        return AskedModel("model", word, hub["name"], hub["revision"] or "")
    raise UnknownModel(f"{word}: no such model; name {KNOWN}")


def _kind_of(folder: Path) -> ModelKind:
    """Return what lies in a folder. Raises UnknownModel for one that holds no model."""
    if holds_adapter(folder):
        return "adapter"
    if not (folder / FULL_CONFIG).exists():
        raise UnknownModel(f"{folder}: holds no model: neither adapter_config.json nor config.json")
    return "model" if any((folder / name).exists() for name in _TOKENIZERS) else "weights"
