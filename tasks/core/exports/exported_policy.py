"""The policy that is exported, and recorded conversations to prove it by: the selected one of a run, or a version."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

from huggingface_hub import metadata_load

from tasks.core.config.params import Params
from tasks.core.config.policy import PACKAGED, RECIPE, PolicyConfig
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.config.stage_inputs import RescoringInputs
from tasks.core.exports.logits_proof import Conversation, conversation
from tasks.core.interfaces.stage import StageContext
from tasks.core.interpreters import INTERPRETERS
from tasks.core.lineage.git_state import git_state
from tasks.core.lineage.params_and_metrics import flat_params, registered_model
from tasks.core.policies.chat_settings import conversation_lines, load_chat_format
from tasks.core.policies.checkpoint_files import holds_adapter
from tasks.core.policies.loading import load_tokenizer
from tasks.core.policies.selected_policy import of_other_policies
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError, digest, read_json
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.core.records.schemas import SCORED_ROLLOUTS, SELECTED_POLICY, SEQUENCES
from tasks.core.records.scores import Scores, Selection
from tasks.core.records.tables import read_table
from tasks.core.registry.model_registry import FOLDER, Version
from tasks.core.registry.run_registry import opened, require_same_base

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


_CONVERSATIONS = 8


@contextmanager
def selected_policy(layout: Layout) -> Iterator[tuple[ExportedPolicy, list[Conversation]]]:
    """Yield the policy that the run in data/ selected."""
    params = recorded_params(layout)
    selection = read_document(layout.selection, Selection)
    for line in of_other_policies(layout):
        raise ArtifactError(line)
    written = [path for split in TEST_SPLITS if (path := layout.score(split)).exists()]
    yield (
        ExportedPolicy(
            name=registered_model(params),
            iteration=selection.iteration,
            base=layout.base_policy,
            checkpoint=layout.policy(selection.iteration),
            config=params.policy,
            knobs=flat_params(params),
            scores=[read_document(path, Scores) for path in written],
            licence=licence_of(layout.base_policy, params.policy.source, layout.root),
            made_from={"git_commit": git_state(layout.root).commit, "weights_sha256": selection.adapter_digest},
            conversations=conversation_lines(load_chat_format(layout.base_policy)),
        ),
        _recorded(layout, selection.iteration),
    )


def _recorded(layout: Layout, iteration: str) -> list[Conversation]:
    """Return some conversations of the selected policy: of its scores, else of its evaluation on dev."""
    scored = [path for split in TEST_SPLITS if (path := layout.score_rollouts(split)).exists()]
    path, policy = (scored[0], SELECTED_POLICY) if scored else (layout.evaluation_rollouts(iteration), iteration)
    table = read_table(path, SCORED_ROLLOUTS)
    rows = [row for row, player in enumerate(table["policy"].to_pylist()) if player == policy]
    if not rows:
        raise ArtifactError(f"{path}: no rollouts of the policy {policy}, by which an export could be proven")
    chosen = table.take(rows[:: max(1, len(rows) // _CONVERSATIONS)][:_CONVERSATIONS])
    columns = (chosen[name].to_pylist() for name in ("token_ids", "policy_mask", SEQUENCES))
    return [conversation(ids[: (*begins, len(ids))[1]], mask) for ids, mask, begins in zip(*columns, strict=True)]


@contextmanager
def registered_policy(layout: Layout, name: str) -> Iterator[tuple[ExportedPolicy, list[Conversation]]]:
    """Yield a registered version, with its files in a temporary folder."""
    with opened(layout.root) as (registry, params):
        version = registry.find(name)
        with registry.weights(version) as files:
            base = _base_of(version, files, layout, params)
            knobs = {key: str(value) for key, value in read_json(files / FOLDER / "params.json").items()}
            source = knobs.get("policy.source", params.policy.source)
            policy = ExportedPolicy(
                name=registry.name,
                iteration=version.tags.get("iteration", f"version {version.number}"),
                base=base,
                checkpoint=files,
                config=_config(knobs, params),
                knobs=knobs,
                scores=[read_document(files / FOLDER / f"{split}.json", Scores) for split in TEST_SPLITS],
                licence=licence_of(base, source, layout.root),
                made_from=version.tags,
                conversations=conversation_lines(load_chat_format(base)),
            )
            yield policy, _conversations_of(files, base, layout)


def _base_of(version: Version, files: Path, layout: Layout, params: Params) -> Path:
    """Return the folder of a version's base model: inside the version, else data/policy. Raises ArtifactError."""
    base = read_json(files / "base.json")
    if base["inside"] and holds_adapter(files):
        return files / str(base["name"])
    require_same_base(version, StageContext(layout, RescoringInputs.of(params)))
    return layout.base_policy


def _config(knobs: Mapping[str, str], params: Params) -> PolicyConfig:
    """Return how a version's base model is loaded: as in its run, on the device of params.yaml."""
    names = {"source": "policy.source", "dtype": "policy.dtype", "trained": "policy.trained"}
    stored = {field: knobs[name] for field, name in names.items() if name in knobs}
    revision = knobs.get("policy.revision", "null")
    return params.policy.model_copy(update={**stored, "revision": None if revision == "null" else revision})


def _conversations_of(files: Path, base: Path, layout: Layout) -> list[Conversation]:
    """Return conversations in a version's own tokens: of the run in data/ where its tokenizer is the same.

    Otherwise the opening prompt that the version keeps as its example.
    """
    tokenizers = [folder / "tokenizer.json" for folder in (base, layout.base_policy)]
    same = all(path.is_file() for path in tokenizers) and digest(tokenizers[0]) == digest(tokenizers[1])
    if same and layout.selection.exists():
        with suppress(ArtifactError):  # a run of another version
            return _recorded(layout, read_document(layout.selection, Selection).iteration)
    prompts: list[str] = read_json(files / "input_example.json")["prompt"]
    ids: list[int] = load_tokenizer(base).encode(prompts[0], add_special_tokens=False)
    return [Conversation(tuple(ids), tuple(range(len(ids))))]
