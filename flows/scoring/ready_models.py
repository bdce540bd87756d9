"""Models made ready to be played: which base model, which checkpoint, which parameters."""

import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.errors import WrongArgument
from flows.scoring.asked_models import AskedModel
from flows.scoring.asked_params import asked_params
from flows.scoring.bases import base_knobs, base_of, trained_part
from flows.scoring.hub_commits import pinned_commit
from tasks.core.config.params import Params
from tasks.core.config.policy import PACKAGED
from tasks.core.records.files import replacing
from tasks.core.registry.model_registry import UnknownVersion
from tasks.core.registry.run_registry import opened

VERSIONS = Path(".loopline") / "scoring" / "versions"
_DIAL_S = 10.0


class NoServer(RuntimeError):  # noqa: N818
    """Nobody answers at a server's address."""


@dataclass(frozen=True)
class Asked:
    """All that a command asks beside its models."""

    root: Path
    """The checkout."""
    world: str
    split: str
    runs: int | None
    base: str | None
    """The base model of checkpoints, where it is named."""
    settings: Sequence[str]


@dataclass(frozen=True)
class ReadyModel:
    """A model that can be played."""

    asked: AskedModel
    params: Params
    checkpoint: Path | None
    """None: the base model is played as it is, or a server."""


def ready_model(model: AskedModel, asked: Asked) -> ReadyModel:
    """Return a model that can be played.

    Raises NoBase, UnknownModel, NoServer, ParamsError, ArtifactError, LineageError.
    """
    if model.kind == "version":
        return _checkpoint(model, _downloaded(model, asked.root), asked)
    if model.kind in ("adapter", "weights"):
        return _checkpoint(model, Path(model.name), asked)
    if model.kind == "api":
        params = _params(model, {}, asked)
        require_server(model.at)
        return ReadyModel(model, params, None)
    return ReadyModel(model, _params(model, base_knobs(_pinned(model)), asked), None)


def require_server(url: str) -> None:
    """Raise NoServer where nothing listens: asking again, as one does a server that is busy, would take minutes."""
    parts = urlsplit(url)
    try:
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        socket.create_connection((parts.hostname, port), _DIAL_S).close()
    except (OSError, ValueError) as error:
        raise NoServer(f"{url}: no server there: {error}") from None


def _checkpoint(model: AskedModel, folder: Path, asked: Asked) -> ReadyModel:
    knobs = base_knobs(_pinned(base_of(folder, asked.base))) | trained_part(folder)
    return ReadyModel(model, _params(model, knobs, asked), folder)


def _pinned(base: AskedModel) -> AskedModel:
    """Return a model of the hub at a commit; folders and packages are what they are."""
    if base.name.startswith(PACKAGED) or Path(base.name).is_dir():
        return base
    return replace(base, at=pinned_commit(base.name, base.at))


def _params(model: AskedModel, policy: dict[str, Any], asked: Asked) -> Params:
    return asked_params(asked.root, model, policy, asked.world, asked.runs, asked.settings)


def _downloaded(model: AskedModel, root: Path) -> Path:
    """Return the files of a registered version, which are kept: a killed score goes on with them.

    Raises WrongArgument for a version that does not exist, ArtifactError and LineageError.
    """
    with opened(root, model.name) as (registry, _):  # left before anything is played: it explains all as MLflow's
        try:
            version = registry.find(model.at)
        except UnknownVersion as error:
            raise WrongArgument(str(error)) from None
        folder = root / VERSIONS / f"{model.name}-{version.number}-{version.tags['adapter_digest'][:12]}"
        if not folder.exists():
            with registry.weights(version) as files, replacing(folder) as temporary:
                shutil.copytree(files, temporary)
    return folder
