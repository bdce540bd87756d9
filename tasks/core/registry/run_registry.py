"""The model registry: versions of the trained policy, compared, and which of them is champion.

A version is named by its number or by an alias (champion, challenger). Versions are compared by the scores that are
stored with them, or by all splits played anew.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tasks.core.config.params import Params, load_params
from tasks.core.config.stage_inputs import RescoringInputs
from tasks.core.evaluation.differences import CONFIDENCE
from tasks.core.interfaces.stage import StageContext
from tasks.core.lineage.mlflow_store import explained, open_store, tracking_uri
from tasks.core.lineage.params_and_metrics import registered_model
from tasks.core.records.comparison import Comparison
from tasks.core.records.documents import write_document
from tasks.core.records.files import replacing
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.core.registry.comparison_page import comparison_page
from tasks.core.registry.model_registry import Registry, Version
from tasks.core.registry.promotion import Decision, decide
from tasks.core.registry.registration import CHALLENGER, CHAMPION
from tasks.core.registry.version_comparison import compare
from tasks.core.registry.version_evaluation import VersionEvaluation


def params_of_run(layout: Layout) -> Params:
    """Return the parameters that the run in data/ was recorded with, under `lineage` as params.yaml has it by now.

    Versions are played in the world that the run prepared; a rule of promotion may be changed at any time. Without a
    run, all of params.yaml. Raises ParamsError and ArtifactError.
    """
    params = load_params(layout.params)
    ran = recorded_params(layout) if layout.manifest.exists() else params
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


def compare_versions(
    registry: Registry, names: Sequence[str], root: Path, params: Params, rescore: bool = False
) -> tuple[Comparison, Path]:
    """Compare the versions with these numbers or aliases; returns the comparison and the folder it was written into.

    One version alone is scored and compared with nothing. Raises UnknownVersion and ArtifactError; then nothing is
    written.
    """
    versions = list({version.number: version for version in map(registry.find, names)}.values())
    layout = Layout(root)
    folder = layout.comparisons / "-".join([registry.name, *(str(version.number) for version in versions)])
    with replacing(folder) as temporary:
        temporary.mkdir()
        if rescore:
            scored = _rescored(registry, versions, StageContext(layout, RescoringInputs.of(params)), temporary)
        else:
            scored = [(version, registry.evaluation(version)) for version in versions]
        comparison = compare(registry.name, scored, CONFIDENCE, rescore)
        write_document(temporary / "comparison.json", comparison)
        (temporary / "comparison.md").write_text(comparison_page(comparison), encoding="utf-8")
    return comparison, folder


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


def _rescored(
    registry: Registry, versions: Sequence[Version], context: StageContext[RescoringInputs], folder: Path
) -> list[tuple[Version, VersionEvaluation]]:
    from tasks.core.registry.rescoring import rescored_evaluation
    from tasks.core.rollouts.playing import forget_paid

    try:
        scored = [(version, rescored_evaluation(registry, version, context, folder)) for version in versions]
        played = [one for _, evaluation in scored for part in evaluation.outcomes.values() for one in part]
        forget_paid(context.inputs, {one.task_id for one in played})
        return scored
    finally:
        context.cache.close()
