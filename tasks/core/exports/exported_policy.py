"""Parts of an exported model, and the facts of its card: the same for a run's policy and for a registered version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

from huggingface_hub import metadata_load

from tasks.core.config.policy import PACKAGED, RECIPE, PolicyConfig
from tasks.core.interpreters import INTERPRETERS
from tasks.core.records.scores import Scores

_OWN_POLICIES = "data/base_policies/"
_OWN_LICENCE = "apache-2.0"


@dataclass(frozen=True)
class ExportedPolicy:
    """A trained policy with its base model."""

    name: str
    """As the registry calls the model."""
    iteration: str
    base: Path
    """Folder of the base model: weights, tokenizer, chat template."""
    checkpoint: Path
    """Folder of the trained part: an adapter, or all weights."""
    config: PolicyConfig
    """How both are loaded."""
    knobs: Mapping[str, str]
    """All parameters of the run by dotted name, as text."""
    scores: Sequence[Scores]
    """Those that there are; of this policy."""
    licence: str | None
    """The base model's, as the hub names it; None where it tells none."""
    made_from: Mapping[str, str] = field(default_factory=dict)
    """Digests and versions by name."""
    conversations: Sequence[str] = ()
    """Lines of Markdown on how its conversations differ from those of its chat template."""

    @property
    def hub_base(self) -> str | None:
        """Return the base model's id on the hub; None for a folder, a package or a warm-started base."""
        pinned = self.knobs.get("policy.revision", "null") != "null"
        return self.config.source if pinned and self.knobs.get("policy.warm_start") == "null" else None


def licence_of(base: Path, source: str, root: Path) -> str | None:
    """Return the licence that a base model names in its card or its package; None if it names none.

    The embedded policies have this project's.
    """
    card = base / "README.md"
    named = (metadata_load(card) or {}).get("license") if card.exists() else None
    if isinstance(named, str):
        return named
    if source.partition(":")[0] == RECIPE or source.startswith(_OWN_POLICIES):
        return _OWN_LICENCE
    return _licence_of_package(source, root) if source.startswith(PACKAGED) else None


def _licence_of_package(source: str, root: Path) -> str | None:
    package, _, version = source.removeprefix(PACKAGED).partition("==")
    paths = [str(path) for path in (root / INTERPRETERS).glob(f"{package}-*/lib/python*/site-packages")]
    for found in distributions(name=package, path=paths):
        if found.version == version:
            named = [found.metadata[key] for key in ("License-Expression", "License") if key in found.metadata]
            return named[0].lower() if named else None
    return None
