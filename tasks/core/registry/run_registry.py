"""The model registry: versions of the trained policy, compared, and which of them is champion.

A version is named by its number or by an alias (champion, challenger). Versions are compared by the scores that are
stored with them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tasks.core.config.params import Params, ParamsError, load_params
from tasks.core.config.splits import MEASURED_SPLITS
from tasks.core.config.stage_inputs import RescoringInputs
from tasks.core.evaluation.level_scores import split_scores
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.interfaces.stage import StageContext
from tasks.core.lineage.dvc_lock import read_lock
from tasks.core.lineage.mlflow_store import explained, open_store, tracking_uri
from tasks.core.lineage.params_and_metrics import registered_model
from tasks.core.records.comparison import Comparison, SplitScores
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.core.records.schemas import SELECTED_POLICY
from tasks.core.registry.model_registry import Registry, Version
from tasks.core.registry.promotion import Decision, decide
from tasks.core.registry.registration import CHALLENGER, CHAMPION
from tasks.core.registry.version_evaluation import VersionEvaluation
from tasks.core.scored_models.comparing import PlayedModel, compared
from tasks.core.scored_models.comparison_page import write_comparison

BASE_TAG = "dataset.data/policy"


def params_of_run(layout: Layout) -> Params:
    """Return the parameters that the run in data/ was recorded with, under `lineage` as params.yaml has it by now.

    A rule of promotion may be changed at any time. Without a run, or with one of another version of loopline, all of
    params.yaml: versions hold what is known of them. Raises ParamsError.
    """
    ran = params = load_params(layout.params)
    with suppress(ArtifactError, ParamsError):
        ran = recorded_params(layout)
    return ran.model_copy(update={"lineage": params.lineage})


@contextmanager
def opened(root: Path, name: str | None = None) -> Iterator[tuple[Registry, Params]]:
    """Yield the registered model of the run in data/ (or the one called `name`) with the run's parameters.

    What MLflow raises in the block becomes one LineageError. Raises LineageError, ParamsError and ArtifactError.
    """
    params = params_of_run(Layout(root))
    with explained(tracking_uri(root)):
        yield open_registry(root, params, name), params


def open_registry(root: Path, params: Params, name: str | None = None) -> Registry:
    """Return the registered model of these params, or the one called `name`. Raises LineageError."""
    return Registry(open_store(params.lineage, root), name or registered_model(params))


def compare_versions(registry: Registry, names: Sequence[str], root: Path) -> tuple[Comparison, Path]:
    """Compare the versions with these numbers or aliases; returns the comparison and the folder it was written into.

    One version alone is compared with nothing. Raises UnknownVersion and ArtifactError; then nothing is written.
    """
    versions = list({version.number: version for version in map(registry.find, names)}.values())
    found = compared(registry.name, [_played(version, registry.evaluation(version)) for version in versions])
    folder = Layout(root).comparisons / "-".join([registry.name, *(str(version.number) for version in versions)])
    write_comparison(folder, found)
    return found, folder


def _played(version: Version, evaluation: VersionEvaluation) -> PlayedModel:
    changed = " (changed)" if version.tags.get("git_dirty") == "true" else ""
    facts = {
        "aliases": ", ".join(version.aliases) or "-",
        "iteration": version.tag("iteration"),
        "adapter": version.tag("adapter_digest")[:12],
        "params": version.tag("params_digest")[:12],
        "commit": (version.tags.get("git_commit", "")[:12] or "unknown") + changed,
    }
    named = {split: evaluation.outcomes.get((split, SELECTED_POLICY)) for split in MEASURED_SPLITS}
    outcomes: dict[str, list[Outcome]] = {split: found for split, found in named.items() if found}
    scores: dict[str, SplitScores] = {
        split: split_scores(outcomes[split], evaluation.behaviour.get(split), evaluation.own.get(split))
        for split in MEASURED_SPLITS
        if split in outcomes
    }
    return PlayedModel(str(version.number), facts, scores, outcomes, evaluation.params)


def promote_version(registry: Registry, name: str, params: Params) -> Decision:
    """Move the alias champion to this version if the rule holds, and say why. Raises UnknownVersion, ArtifactError."""
    version = registry.find(name)
    if CHAMPION in version.aliases:
        return Decision(True, (f"version {version.number} is the champion already",))
    champion = next((other for other in registry.versions if CHAMPION in other.aliases), None)
    theirs = registry.evaluation(champion) if champion else None
    decision = decide(registry.evaluation(version), theirs, params.lineage.promotion)
    if decision.promote:
        registry.move_alias(CHAMPION, version)
        if CHALLENGER in version.aliases:
            registry.drop_alias(CHALLENGER)
    against = f"version {champion.number}, the champion" if champion else "the base policy, since there is no champion"
    return Decision(decision.promote, (f"version {version.number} against {against}", *decision.reasons))


def require_same_base(version: Version, context: StageContext[RescoringInputs]) -> None:
    """Check that the version was trained from this base policy. Raises ArtifactError otherwise.

    An adapter for another base model would still load, but mean nothing.
    """
    inputs, layout = context.inputs, context.layout
    name = layout.base_policy.relative_to(layout.root).as_posix()
    ours = read_lock(layout.root / "dvc.lock", inputs.previous, inputs.evaluated).artifacts.get(name)
    theirs = version.tags.get(BASE_TAG)
    if ours != theirs:
        raise ArtifactError(
            f"version {version.number} was trained from the base policy {theirs}, but {name} is {ours}; "
            f"check out commit {version.tags.get('git_commit', '?')[:12]} and run `dvc checkout`, or `dvc pull`"
        )
