"""prepare_policy: pin the base model -> data/policy/; what iteration 1 starts from -> data/iterations/i000/."""

import re
from pathlib import Path
from shutil import rmtree

from tasks.core.config.params import ParamsError, iteration_key
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.stage_inputs import BasePolicyInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.delivery_probe import untrained_probe, write_probe
from tasks.core.policies.digests import copy_verified
from tasks.core.policies.loading import load_base_model, load_chat_format, save_policy, trainable_policy
from tasks.core.records.files import ArtifactError, replacing
from tasks.core.records.training_course import begin_course
from tasks.core.seeding import derive_seed

RECIPE = "recipe"
HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja", "*.model", "LICENSE*", "README.md")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def prepare_policy(context: StageContext[BasePolicyInputs]) -> None:
    """Write the base policy that `policy.source` names, and the untrained checkpoint drawn from `seed` with its record.

    Raises ArtifactError for a source that is missing, damaged or no causal language model with a usable chat template,
    ParamsError for a hub id without a pinned commit; then nothing is written.
    """
    config, layout = context.inputs.policy, context.layout
    with replacing(layout.base_policy) as folder:
        folder.mkdir()
        _fetch(config, layout.root, folder)
        chat = load_chat_format(folder)
        model = load_base_model(folder, config)
        seed = derive_seed(context.inputs.seed, "initial policy")
        with replacing(layout.policy(iteration_key(0))) as checkpoint:
            policy = trainable_policy(model, config, None, seed)
            save_policy(policy, checkpoint)
            write_probe(checkpoint, untrained_probe(policy, chat, model.config.vocab_size, config, checkpoint))
    begin_course(layout)


def _fetch(config: PolicyConfig, root: Path, folder: Path) -> None:
    source = root / config.source
    if config.source == RECIPE:
        _train(folder)
    elif source.is_dir():
        copy_verified(source, folder)
    elif _HUB_ID.fullmatch(config.source) and not config.source.startswith("data/"):
        _download(config, folder)
    else:
        raise ArtifactError(f"policy.source: {config.source} is neither a folder, `recipe` nor a Hugging Face hub id")


def _train(folder: Path) -> None:
    from tasks.core.policies.recipe import Recipe, make_policy

    model, tokenizer = make_policy(Recipe())
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _download(config: PolicyConfig, folder: Path) -> None:
    """A snapshot of the hub repository at the pinned commit; taken from the local cache when it is there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if config.revision is None or not _COMMIT.fullmatch(config.revision):
        raise ParamsError(
            f"policy.revision: the hub id {config.source} needs the commit (40 hex digits) to be pinned at"
        )
    try:
        snapshot_download(config.source, revision=config.revision, local_dir=folder, allow_patterns=list(HUB_FILES))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        place = f"{config.source}@{config.revision}"
        raise ArtifactError(f"policy.source: {place} could not be fetched: {str(error).splitlines()[0]}") from None
    rmtree(folder / ".cache", ignore_errors=True)  # times of download, which would change the artifact's digest
